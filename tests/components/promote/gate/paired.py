"""Paired scores drawn by a seed, as evaluations of two models would give them."""

import numpy as np

DOCUMENTS = {"诗": 400, "词": 200, "文": 90, "赋": 45}


def scores(gain, *, noise=0.3, seed=0, documents=None):
    """Genre -> paired scores; the champion has 8 bits per character, the challenger `gain` fewer.

    `gain` by genre or for all. `noise`: standard deviation of a document's difference, bits per character.
    """
    draw, result = np.random.default_rng(seed), {}
    for genre, number in (documents or DOCUMENTS).items():
        characters = draw.integers(20, 200, number).astype(float)
        champion = characters * (8 + draw.normal(0, 0.5, number))
        fewer = gain.get(genre, 0.0) if isinstance(gain, dict) else gain
        challenger = champion - characters * (fewer + draw.normal(0, noise, number))
        result[genre] = np.stack([characters, challenger, champion], 1)
    return result


def grouped_scores(draw, *, groups=60, spread=0.3, noise=0.3, gain=0.0, most=12):
    """Scores of one genre whose documents hang together in groups of 1 to `most`.

    Args:
        spread: standard deviation of a group's own gain, bits per character.
    """
    sizes = draw.integers(1, most + 1, groups)
    group = np.repeat(np.arange(groups), sizes)
    characters = draw.integers(20, 200, len(group)).astype(float)
    fewer = gain + draw.normal(0, spread, groups)[group] + draw.normal(0, noise, len(group))
    champion = 8 * characters
    return np.stack([characters, champion - characters * fewer, champion, group], 1)
