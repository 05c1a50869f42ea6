"""The routes of ``/v1``, one module for each kind of thing that is asked for."""
