"""The decision service: a process that keeps agents and never loses an acknowledged operation.

``restless serve`` starts the service and ``rb.Client`` connects to it. Importing this package loads nothing: the web
framework and the database come with the extra ``service``, and are loaded by the modules that need them.
"""
