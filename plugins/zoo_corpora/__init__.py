"""The zoo's own corpora: the atlas and the phrasebook, both made here, nothing downloaded. Imports no mlx."""
