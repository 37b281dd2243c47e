"""A translation model over HTTP: the routes of two well-known services, and a page. ``serve.py`` is the command."""
