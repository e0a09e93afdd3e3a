"""HTTP: routes, messages, authentication, middleware, metrics, event streams, the server process."""
