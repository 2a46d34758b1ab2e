"""Chat: conversations laid out by the checkpoint's template, tools, and answers parsed as they are generated."""
