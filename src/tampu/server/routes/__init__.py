"""The routes, one module per kind of resource. Publish, claim, settle and extend are handled in ``http/``."""
