"""placeholder"""


def draw(record, out):
    return []
