"""The terminal of a conversation: `loop` reads questions and shows answers, `commands` are what begins with a slash."""
