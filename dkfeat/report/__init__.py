"""Reports of results: figures and HTML pages."""
