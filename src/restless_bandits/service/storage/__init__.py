"""Storage of the service: schema, sessions, tokens, stored plans, copies of a store."""
