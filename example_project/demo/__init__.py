"""What `manage.py demo` is made of: a server, a worker beside it, something to look at, and a burst of sign-ups."""
