"""The demonstration: drawn screens, a tiny CLIP that knows them, and ``make demo``."""
