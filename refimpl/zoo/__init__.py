"""The builders of the networks that have a name; `refimpl.names.networks` finds them by it."""
