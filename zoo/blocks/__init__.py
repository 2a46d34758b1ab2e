"""The modules that several families share; `zoo.builtin` says where each is."""
