"""The modules that several families share; `zoo.host.core` says where each is."""
