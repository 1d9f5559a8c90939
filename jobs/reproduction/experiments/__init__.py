"""The papers' experiments: a module each, and what several of them share."""
