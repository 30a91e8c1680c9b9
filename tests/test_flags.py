"""Flags: which of them put distances in doubt."""

from advfrontier.flags import Flag, Kind, doubts


def test_flags_on_how_a_result_was_made_put_nothing_in_doubt():
    harmless = [Kind.TRAINING, Kind.VERSIONS, Kind.UNBROKEN, Kind.INTERRUPTED, Kind.EOT]
    harmless.append(Kind.RESOLUTION)
    assert [kind for kind in Kind if not Flag(kind, "").doubtful] == harmless


def test_doubts_are_the_other_flags_in_their_order():
    flags = [Flag(Kind.BEATEN, "one"), Flag(Kind.EOT, "two"), Flag(Kind.RANDOM, "three")]
    assert [str(flag) for flag in doubts(flags)] == ["one", "three"]
