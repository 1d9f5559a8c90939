"""File systems of paths and URLs: protocols, retries, HTTP, and hidden credentials."""
