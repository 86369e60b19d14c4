"""A small shop that shows django_jobs at work; `python manage.py demo` serves it."""
