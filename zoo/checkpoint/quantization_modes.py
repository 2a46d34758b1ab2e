"""The numbers of MLX's quantizations. Imports no mlx."""

from __future__ import annotations

AFFINE_BITS = (1, 2, 3, 4, 5, 6, 8)
AFFINE_GROUPS = (32, 64, 128)
# The other modes' bits and inputs a group; their scales are single bytes.
FLOAT_MODES = {"mxfp4": (4, 32), "nvfp4": (4, 16), "mxfp8": (8, 32)}
# The last step of the path of a router's scores, which choose the experts of every token and get eight bits.
ROUTERS = "router.scores"
ROUTER_BITS, ROUTER_GROUP = 8, 64
