"""The page for people: what it shows, its templates, and the one style and script it has."""
