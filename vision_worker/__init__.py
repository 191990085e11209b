"""Image memory for AI agents: save now, embed after, rank only what is embedded."""
