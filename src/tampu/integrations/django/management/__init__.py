"""Commands of `manage.py`, for projects with `tampu.integrations.django` in INSTALLED_APPS."""
