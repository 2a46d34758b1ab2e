"""The plugin host: hooks, discovery, precedence among plugins, and the registry of what they gave."""
