"""The decision service: agents kept by a process that never forgets what it has acknowledged.

``restless serve`` starts it and ``rb.Client`` speaks to it. Importing this package loads nothing: web framework and
database come with the extra ``service``, and with the modules that need them.
"""
