"""The story grammar: reads plots.txt, draws a cast and tells one story.

A template has two marks: [a|b|c] picks a branch (branches nest), {a.he} reads a field of the cast.
The cast is drawn once a story, so a name, a pronoun or a lost thing stays the same from the first
sentence to the last. The same seed tells the same story.
"""

import random
import re
from pathlib import Path

import words as W

BRANCH = re.compile(r"\[([^\[\]]*)\]")
START = re.compile(r"((?:^|[.!?] |\.\" )\"?)([a-z])")  # a sentence starts here with a small letter
PRONOUNS = {"he": ("him", "his", "himself"), "she": ("her", "her", "herself")}


def article(phrase):
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


def capital(text):
    return text[0].upper() + text[1:]


class Who:
    """Somebody. name is how the story refers to them once it has introduced them as first."""

    def __init__(self, name, first, he, kind, family=""):
        self.name, self.first, self.he, self.kind, self.fam = name, first, he, kind, family
        self.him, self.his, self.self = PRONOUNS[he]
        self.He, self.His, self.known = capital(he), capital(self.his), False

    @property
    def intro(self):
        self.known = True
        return self.first

    @property
    def whole(self):
        self.known = True
        return self.full

    @property
    def plain(self):
        self.known = True
        return self.name

    def __str__(self):
        text = self.name if self.known else self.first
        self.known = True
        return text


class Thing:
    """{o.a}: an old drum; {o.the}: the old drum; {o.short}: the drum; {o.noun}: drum."""

    def __init__(self, noun, adjective):
        self.noun, self.full = noun, f"{adjective} {noun}"
        self.a, self.the, self.short = article(self.full), "the " + self.full, "the " + noun


class Plot:
    """One == section of plots.txt."""

    def __init__(self, text):
        blocks = re.split(r"\n\n+", text.strip())
        head = blocks[0].split("\n")
        self.name = head[0]
        self.rules = [line[1:].split(" ", 1) for line in head[1:]]
        self.flags = {r[0]: r[1].split() if len(r) > 1 else [] for r in self.rules}
        self.paragraphs = [b.replace("\n", " ") for b in blocks[1:-1]]
        self.endings = [re.sub(r"\s+", " ", e) for e in blocks[-1][2:].split("\n- ")]


def read_plots(path=Path(__file__).with_name("plots.txt")):
    return [Plot(t) for t in re.split(r"^== ", path.read_text(), flags=re.M)[1:]]


class Story:
    def __init__(self, plots, seed):
        self.rng = random.Random(seed)
        self.cast, self.names, self.text = {}, [], []
        self.plot = self.rng.choices(plots, [1.12**-i for i in range(len(plots))])[0]
        self.draw_cast()
        self.tell(*self.opening())
        self.cast["a"].known = True
        for paragraph in self.plot.paragraphs:
            self.tell(paragraph)
        self.tell(*self.ending())

    def pick(self, items):
        """The first is likeliest: even choices would teach ties, which rounding decides."""
        items = list(items)
        return self.rng.choices(items, [1 / (2 + i) for i in range(len(items))])[0]

    def phrase(self, template):
        while BRANCH.search(template):
            template = BRANCH.sub(lambda m: self.pick(m.group(1).split("|")), template)
        return template.format_map(self.cast)

    def tell(self, *templates):
        text = self.phrase(" ".join(templates))
        self.text.append(START.sub(lambda m: m.group(1) + m.group(2).upper(), text))

    # ---- the cast ----

    def name_from(self, names):
        """Initials differ within a story, so that nobody is mistaken for somebody else. Some names
        are made up, so that the model learns to repeat one that it has never seen."""
        taken = [n[0] for n in self.names]
        if self.rng.random() < 0.15:
            names = {
                "".join(
                    self.rng.choice(W.SYLLABLES) for _ in range(self.rng.choice([2, 2, 3]))
                ).capitalize()
                for _ in range(20)
            }
            names = sorted(names)
        name = self.pick([n for n in names if n[0] not in taken])
        self.names.append(name)
        return name

    def child(self):
        he = self.pick(["he", "she"])
        name, kind = self.name_from(W.BOYS if he == "he" else W.GIRLS), (
            "boy" if he == "he" else "girl"
        )
        looks = self.pick(["little", "young", "small"])
        family = self.pick(W.CHILD_FAMILIES).format(PRONOUNS[he][1])
        return Who(name, f"{article(looks)} {kind} {self.pick(W.CALLED)} {name}", he, kind, family)

    def creature(self, kinds):
        he = self.pick(["he", "she"])
        avoid = self.plot.flags.get("avoid", []) + [
            w.kind for w in self.cast.values() if isinstance(w, Who)
        ]
        kind = self.pick(k for k in kinds if not set(k.split("/")) & set(avoid))
        looks = self.pick(["little", "small", "young"] + kinds[kind].split())
        kind = kind.split("/")[-1 if he == "she" else 0]
        name = self.name_from(W.PETS)
        family = self.pick(W.CREATURE_FAMILIES).format(PRONOUNS[he][1])
        return Who(name, f"{article(looks)} {kind} {self.pick(W.CALLED)} {name}", he, kind, family)

    def elder(self, elders):
        full, he = self.pick(elders).split(":")
        adjective, _, noun = full.partition(" ")
        kind = noun if adjective in W.ADJECTIVES else full
        return Who("the " + kind, article(full), he, kind)

    def thing(self, nouns):
        noun, adjectives = self.pick(nouns)
        return Thing(noun, self.pick(adjectives.split()))

    def draw_cast(self):
        cast, flags = self.cast, self.plot.flags
        roll = 1 if "children" in flags else self.rng.random()
        worlds, kinds = (
            (W.ANIMAL_WORLDS, W.SPECIES)
            if roll < 0.33
            else (W.FAIRY_WORLDS, W.FAIRY_KIND) if roll < 0.45 else (W.CHILD_WORLDS, None)
        )
        home, folk, spots, elders = self.pick(worlds)
        season = self.pick(flags.get("seasons", W.SEASONS))
        self.traits = self.rng.sample(W.TRAITS, len(W.TRAITS))
        for key in "ab":
            cast[key] = self.creature(kinds) if kinds else self.child()
        (p, in_p), (q, in_q) = self.rng.sample(spots, 2)
        sky = self.pick(W.FINE[season])
        cast.update(
            h=self.elder(elders),
            p=p,
            in_p=in_p,
            q=q,
            in_q=in_q,
            home=home,
            folk=folk,
            season=season,
            in_folk=("on " if folk == "the farm" else "in ") + folk,
            sky=sky,
            trait=self.traits[0],
            trait2=self.traits[1],
            trait3=self.traits[2],
            sky_low=sky[0].lower() + sky[1:],
            house="home" if kinds else "house",
            o=self.thing(W.TREASURES if kinds else W.TOYS),
            treat=self.pick(W.TREATS),
            like=self.pick(W.ANIMAL_LIKES if kinds else W.CHILD_LIKES),
            meal=self.pick(W.ANIMAL_MEALS if kinds else W.CHILD_MEALS),
        )
        self.draw_own()

    def draw_own(self):
        """What only this plot has: its @let and @thing lines."""
        for rule, *rest in self.plot.rules:
            if rule == "let":
                name, values = rest[0].split(" ", 1)
                self.cast[name] = self.pick(values.split("|"))
            elif rule == "thing":
                name, values = rest[0].split(" ", 1)
                nouns, adjectives = values.split(" / ")
                self.cast[name] = Thing(
                    self.pick(nouns.split("|")), self.pick(adjectives.split("|"))
                )

    # ---- how it opens and closes ----

    def opening(self):
        """Some openings already name a day; then the plot goes on in that day."""
        dated = "weather" not in self.plot.flags and self.rng.random() < 0.35
        self.cast["when"] = self.phrase(self.pick(W.SAME_DAY if dated else W.ANY_DAY))
        stranger, weather = "stranger" in self.plot.flags, self.plot.flags.get("weather", [""])[0]
        first = self.pick(
            [
                t
                for t in (W.DATED if dated else W.TIMELESS + W.WEATHER.get(weather, []))
                if not (stranger and "{b" in t)
            ]
        )
        about = self.pick(
            W.TOGETHER
            if "{b" in first
            else [
                t
                for t in W.ABOUT
                if not ("{b" in t and stranger) and not ("{trait" in t and "{trait" in first)
            ]
        )
        friend = self.cast["b"]
        friend.full = friend.first
        if not stranger:
            friend.first = f"{self.cast['a'].his} friend {friend.name}"
        if weather:
            self.cast["when"] = self.phrase(
                "that day" if first in W.WEATHER[weather] else "one {season} day"
            )
        return first, about

    def ending(self):
        """The plot's moral or, unless weeks have passed, the night."""
        night = "late" not in self.plot.flags and self.rng.random() < 0.25
        return (self.pick(W.NIGHTS if night else self.plot.endings),)

    def __str__(self):
        return "\n\n".join(self.text)
