"""`manage.py tampu_worker` carries out tasks."""
