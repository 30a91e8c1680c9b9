"""Files changed at random, the same way for the same seed."""

import re

VALUES = (
    "0",
    "-1",
    "1",
    "3",
    "true",
    "nan",
    "inf",
    "1e400",
    "0.5",
    '""',
    '"x"',
    '"L2"',
    '"4k"',
    '"\\u0000"',
    "[]",
    "{}",
    "[[]]",
    "[1]",
    '["x"]',
    "1979-05-27",
    "07:32:00",
    "0x" + "f" * 5000,
    "9" * 5000,
    '"' + "9" * 5000 + '"',
    "[" * 500,
    "'''",
    "{ a = { b = [] } }",
)


def mutate_bytes(content, random):
    """Flip bits, cut the end off, take a part out, repeat a part, put noise or another part in;
    once or a few times.
    """
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        if not content:
            return content
        first = random.randrange(len(content))
        last = min(len(content), first + random.choice((1, 2, 4, 16, 200)))
        part = content[first:last]
        match random.randrange(7):
            case 0 | 1:
                part = bytes([part[0] ^ 1 << random.randrange(8)]) + part[1:]
            case 2:
                part = bytes(random.randrange(256) for _ in part)
            case 3:
                part = b""
            case 4:
                part *= random.choice((2, 3, 50))
            case 5:
                other = random.randrange(len(content))
                part = content[other : other + len(part)]
            case 6:
                part, last = part[:1], len(content)
        content = content[:first] + part + content[last:]
    return content


def mutate_text(content, random):
    """Change a value, a key or a line of a TOML file, or its bytes."""
    if random.random() < 0.3:
        return mutate_bytes(content, random)
    lines = content.decode().splitlines()
    for _ in range(random.choice((1, 1, 2, 4))):
        place = random.randrange(len(lines))
        line = lines[place]
        match random.randrange(6):
            case 0 | 1:
                key, equals, _value = line.partition("=")
                lines[place] = f"{key}{equals} {random.choice(VALUES)}" if equals else line
            case 2:
                lines[place] = re.sub(
                    r"\d+(\.\d+)?|\"[^\"]*\"", lambda _: random.choice(VALUES), line, count=1
                )
            case 3:
                lines.insert(random.randrange(len(lines)), line)
            case 4:
                lines[place] = line.replace(
                    random.choice(line or "#"), random.choice('=."[]{}#\\\n\x00é'), 1
                )
            case 5:
                if len(lines) > 1:
                    del lines[place]
    return "\n".join(lines).encode(errors="surrogatepass")
