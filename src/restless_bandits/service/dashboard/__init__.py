"""The dashboard of the service: its pages, and the analysis shown on them."""
