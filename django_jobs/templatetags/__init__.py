"""Front door: tags for the templates of a project. They show; none writes."""
