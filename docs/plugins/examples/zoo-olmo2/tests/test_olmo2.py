"""What olmo2 must hold."""

import zoo_olmo2

from zoo.testing import check_architecture


def test_conforms(zoo_registry):
    """The zoo's suite."""
    check_architecture("olmo2", registry=zoo_registry(zoo_olmo2))


def test_a_joint_norm_gives_all_heads_together_a_mean_square_of_one():
    """Not each head by itself, as the norm of the zoo's attention does."""
    import mlx.core as mx
    from zoo_olmo2.block import JointRMSNorm

    norm = JointRMSNorm(zoo_olmo2.JointRMSNorm(heads=3), dim=8)
    scale = mx.array([1.0, 10.0, 100.0])[:, None, None]  # heads of different sizes
    squares = mx.square(norm(scale * mx.random.normal((2, 3, 5, 8))))  # (B, H, T, K)
    assert mx.allclose(squares.mean(axis=(1, 3)), mx.ones((2, 5)), atol=1e-4).item()
    assert squares[:, 0].mean().item() < 0.01 < squares[:, 2].mean().item()
