"""The dashboard: the data it shows, its templates, its style sheet and script. The routes are in routes/console.py."""
