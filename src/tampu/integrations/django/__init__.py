"""A backend of Django's tasks (`django.tasks`, or the package `django-tasks` before Django 6).

    TASKS = {"default": {"BACKEND": "tampu.integrations.django.TampuBackend"}}

Tasks are published in the transaction of the request. See docs/how-to/django.md.
"""

from tampu.integrations.django.backend import TampuBackend

__all__ = ["TampuBackend"]
