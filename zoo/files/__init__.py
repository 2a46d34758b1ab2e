"""Files: `reading` (a checkpoint's, a person's, JSON within bounds), `writing` (whole or not at all). Imports no mlx."""
