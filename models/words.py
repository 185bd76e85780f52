"""The words of the stories: names, places, things, and the ways in which a story opens and ends."""

SEASONS = ["spring", "summer", "autumn", "winter"]
GIRLS = """Mia Anna Lily Rosa Clara Ella Nora Ruby Hanna Maya Zoe Lucy Emma Sofia Ivy Molly Grace
Tessa Alice June Olive Daisy Nina Vera Kira Leah Amy Jane Poppy Mila Sara Wendy Flora Hazel
Iris""".split()
BOYS = (
    """Tom Ben Sam Leo Max Finn Noah Jack Oscar Hugo Adam Peter Luke Theo Felix Henry Owen Emil Otto
Milo Eli Ravi Omar Jonas Toby Simon Will Arlo Dan Paul Anton George Karl Nico David""".split()
)
PETS = (
    """Pip Bramble Hazelnut Pepper Clover Biscuit Button Acorn Willow Maple Nutmeg Thistle Fern Moss
Tumble Whisker Velvet Ginger Pebble Sorrel Tansy Birch Rusty Dusty Bounce Twig Honey Snowdrop
Barley Mossy""".split()
)
SPECIES = {
    "dog": "brown friendly",
    "cat": "gray black",
    "rabbit": "brown white gray",
    "mouse": "gray brown white",
    "fox": "red young",
    "hedgehog": "round brown",
    "squirrel": "red gray",
    "bear": "brown round",
    "badger": "young gray",
    "duck": "white yellow",
    "deer": "brown young",
    "mole": "black round",
    "otter": "brown playful",
    "frog": "green round",
    "pony": "brown white",
    "lamb": "white soft",
    "goat": "gray playful",
    "bird": "blue yellow",
    "lion": "golden sleepy",
    "elephant": "gray round",
}
SYLLABLES = (
    """ba be bi bo da de di do el fa fi ja jo ka ki la le li lo lu ma me mi mo na ni no pa ra re ri
ro sa se si so ta te ti to va vi za zo an en in or""".split()
)
TRAITS = """kind curious brave cheerful quiet clever gentle playful patient thoughtful friendly
careful lively""".split()

FINE = {
    "spring": [
        "The sun was warm, and the first flowers were opening.",
        "Birds were singing in every tree.",
        "The air smelled of fresh grass.",
        "The sky was blue after a long, cold winter.",
        "A soft wind moved through the new leaves.",
    ],
    "summer": [
        "The sun was shining, and the sky was blue.",
        "Bees hummed over the flowers.",
        "It was a bright and warm day.",
        "There was not a single cloud in the sky.",
        "The grass was tall and the air was warm.",
    ],
    "autumn": [
        "The leaves were turning red and gold.",
        "A cool wind was blowing the leaves from the trees.",
        "The air was fresh and smelled of apples.",
        "Golden leaves covered the ground.",
        "The sun was low, but it was still warm.",
    ],
    "winter": [
        "A thin layer of frost covered the ground.",
        "The air was cold and clear.",
        "The roofs were white, and the sun was pale.",
        "Smoke was rising from every chimney.",
        "The pond was frozen, and the sky was bright.",
    ],
}

# Where a story happens: "in ...", what its people call it, (place, where a thing lies there),
# elder:pronoun.
CHILD_WORLDS = [
    (
        "in a small village by the sea",
        "the village",
        [
            ("the beach", "between two rocks on the beach"),
            ("the old pier", "under the old pier"),
            ("the lighthouse", "behind the lighthouse"),
            ("the harbor", "in a basket at the harbor"),
            ("the market", "beside a cart at the market"),
        ],
        ["old fisherman:he", "kind baker:she", "lighthouse keeper:he", "young sailor:she"],
    ),
    (
        "in a small village at the foot of a mountain",
        "the village",
        [
            ("the well", "next to the old well"),
            ("the mill", "behind the mill"),
            ("the stone bridge", "under the stone bridge"),
            ("the meadow", "in the long grass of the meadow"),
            ("the apple trees", "under the oldest apple tree"),
        ],
        ["old miller:he", "kind baker:she", "shepherd:he", "clock maker:he", "weaver:she"],
    ),
    (
        "in a little town by a river",
        "the town",
        [
            ("the park", "under a bench in the park"),
            ("the river", "in the tall grass by the river"),
            ("the library", "on the steps of the library"),
            ("the train station", "beside the gate of the train station"),
            ("the bakery", "behind the bakery"),
        ],
        [
            "friendly baker:he",
            "old librarian:she",
            "gardener:she",
            "shoemaker:he",
            "music teacher:she",
        ],
    ),
    (
        "on a farm at the edge of a forest",
        "the farm",
        [
            ("the barn", "in the hay in the barn"),
            ("the pond", "among the reeds by the pond"),
            ("the chicken house", "behind the chicken house"),
            ("the orchard", "under a pear tree in the orchard"),
            ("the old fence", "beside the old fence"),
        ],
        ["old farmer:he", "cheese maker:she", "beekeeper:she", "carpenter:he"],
    ),
    (
        "in a wooden house near a lake",
        "the valley",
        [
            ("the lake", "on the shore of the lake"),
            ("the boat house", "inside the boat house"),
            ("the pine trees", "under the pine trees"),
            ("the little bridge", "beside the little bridge"),
            ("the berry bushes", "under the berry bushes"),
        ],
        ["old boat builder:he", "forest ranger:she", "painter:she", "wood cutter:he"],
    ),
]
ANIMAL_WORLDS = [
    (
        "in a green forest",
        "the forest",
        [
            ("the stream", "between two stones by the stream"),
            ("the old oak tree", "among the roots of the old oak tree"),
            ("the clearing", "in the middle of the clearing"),
            ("the fern valley", "under a big fern"),
            ("the fallen log", "behind the fallen log"),
        ],
        ["wise old owl:she", "slow old turtle:he", "busy beaver:he", "old crow:she"],
    ),
    (
        "in a wide meadow full of flowers",
        "the meadow",
        [
            ("the pond", "among the reeds by the pond"),
            ("the stone wall", "in a crack of the stone wall"),
            ("the hollow tree", "inside the hollow tree"),
            ("the blackberry bush", "under the blackberry bush"),
            ("the little hill", "on top of the little hill"),
        ],
        ["old goose:she", "wise old toad:he", "gentle cow:she", "quiet snail:he"],
    ),
    (
        "near a quiet pond in the woods",
        "the woods",
        [
            ("the reeds", "deep in the reeds"),
            ("the willow tree", "under the willow tree"),
            ("the muddy path", "beside the muddy path"),
            ("the big rock", "behind the big rock"),
            ("the waterfall", "near the little waterfall"),
        ],
        ["old heron:he", "wise old owl:she", "friendly beaver:he", "slow old turtle:she"],
    ),
]
FAIRY_WORLDS = [
    (
        "in a castle on a green hill",
        "the kingdom",
        [
            ("the tower", "on the steps of the tower"),
            ("the rose garden", "under a rose bush"),
            ("the castle gate", "beside the castle gate"),
            ("the silver fountain", "next to the silver fountain"),
            ("the stables", "in the straw of the stables"),
        ],
        ["old wizard:he", "good queen:she", "royal cook:he", "knight:he"],
    ),
    (
        "in an enchanted forest",
        "the forest",
        [
            ("the crystal spring", "beside the crystal spring"),
            ("the tallest tree", "at the foot of the tallest tree"),
            ("the glass bridge", "under the glass bridge"),
            ("the mushroom ring", "inside the mushroom ring"),
            ("the secret cave", "at the mouth of the secret cave"),
        ],
        ["old wizard:he", "kind witch:she", "gentle giant:he", "old tree spirit:she"],
    ),
]
FAIRY_KIND = {
    "dragon": "green red",
    "gnome": "cheerful round",
    "elf": "quiet young",
    "troll": "big shy",
    "unicorn": "white silver",
    "robot": "shiny tin",
    "prince/princess": "cheerful kind",
}
TOYS = [
    ("kite", "red blue yellow striped"),
    ("ball", "red blue green yellow"),
    ("wooden horse", "little brown white"),
    ("toy boat", "blue white little"),
    ("scarf", "red blue striped warm"),
    ("hat", "green blue straw woolen"),
    ("drum", "small red round"),
    ("music box", "silver tiny old"),
    ("picture book", "old blue thick"),
    ("flute", "wooden silver small"),
    ("lantern", "little golden old"),
    ("teddy bear", "brown soft old"),
]
TREASURES = [
    ("acorn", "golden big shiny"),
    ("feather", "blue white long"),
    ("stone", "round shiny blue smooth"),
    ("shell", "pink white shiny"),
    ("bell", "silver tiny golden"),
    ("button", "red golden round"),
    ("blanket", "soft green warm"),
    ("basket", "little round old"),
    ("whistle", "wooden tiny silver"),
]
TREATS = [
    "an apple cake",
    "a warm loaf of bread",
    "a berry pie",
    "a honey cake",
    "a bowl of sweet strawberries",
    "a basket of red apples",
    "a plum cake",
    "a bag of roasted nuts",
]
CHILD_MEALS = [
    "hot soup",
    "warm bread with honey",
    "sweet berries",
    "apple pie",
    "a big bowl of soup",
    "warm milk and bread",
]
ANIMAL_MEALS = [
    "sweet berries",
    "roasted nuts",
    "warm acorn soup",
    "honey cake",
    "clover salad",
    "a big bowl of soup",
]
ADJECTIVES = {"old", "kind", "tall", "friendly", "wise", "slow", "busy", "gentle", "quiet"}
CHILD_LIKES = [
    "draw pictures of birds",
    "listen to old stories",
    "sing songs",
    "run in the wind",
    "collect smooth stones",
    "climb trees",
    "look for shells and feathers",
    "ask questions",
    "read by the window",
    "watch the clouds",
    "help in the kitchen",
    "play outside until dark",
    "make up little songs",
    "feed the birds",
]
ANIMAL_LIKES = [
    "run through the tall grass",
    "watch the clouds",
    "collect shiny stones",
    "sing in the evening",
    "roll down the hill",
    "listen to old stories",
    "look for sweet berries",
    "jump over puddles",
    "sleep in the warm sun",
    "play hide and seek",
    "ask questions",
    "count the stars",
]
TIMELESS = [
    "Once upon a time, there was {a.intro}. {a.He} lived {home} with {a.fam}.",
    "Once upon a time, there was {a.intro} who lived {home}.",
    "Once upon a time, {home}, there lived {a.intro}.",
    "Once upon a time, {a.intro} lived {home}.",
    "There was once {a.intro} who lived {home} with {a.fam}.",
    "There was {a.intro} who lived {home}.",
    "{a.intro} lived {home}.",
    "{a.plain} and {b.plain} lived {home}. They were the best of friends.",
    "{a.plain} and {b.plain} were good friends. They lived {home}.",
    "The old [king|queen|man|woman|farmer|sailor] [liked to tell|told everyone] "
    "the story of {a.intro}. {a.He} lived {home}.",
    "The [little|small|young] {a.kind} {a.plain} lived {home}.",
    "Far away, {home}, there lived {a.intro}.",
    "In a land far away, {a.intro} lived {home}.",
    "Last {season}, I heard a story about {a.intro}. {a.He} lived {home} with {a.fam}.",
    "{a.plain} was a {trait3} {a.kind} who lived {home} with {a.fam}.",
    "{a.plain} lived {home} with {a.fam}. {a.He} was a [small|young|happy] {a.kind} "
    "with [bright eyes|a big "
    "heart|many questions].",
    "Long ago, {home}, there lived {a.intro}.",
    "A long time ago, {a.intro} lived {home}.",
    "Once there was {a.intro}. {a.He} lived {home} with {a.fam}.",
    "The youngest {a.kind} {in_folk} was called {a.plain}. {a.He} lived with {a.fam}.",
    "Have you heard of {a.plain}? {a.He} was a {trait3} {a.kind} who lived {home}.",
    "Every child {in_folk} knows the story of {a.intro}.",
    "The sun always seemed to shine on the {house} of {a.intro}. {a.He} lived there with {a.fam}.",
    "{home}, there lived {a.intro}.",
    "This is the story of {a.intro} who lived {home}.",
    "Not so long ago, {a.intro} lived {home} with {a.fam}.",
    "My grandmother once told me a story about {a.intro}. {a.He} lived {home}.",
]
WEATHER = {
    "rain": [
        "It was raining {in_folk}. {a.intro} sat by the window and looked out.",
        "It had rained {in_folk} for days. {a.intro} listened to the drops.",
    ],
    "snow": ["It was snowing {in_folk}. {a.intro} sat by the window and looked out."],
}
DATED = [
    "When the sun came up, {a.intro} was already awake. {sky}",
    "Today was a special day. {sky} {a.intro} jumped out of bed.",
    "One day, {a.plain} the {a.kind} had nothing to do. {sky}",
    "It was a quiet morning {in_folk}. {sky} {a.intro} opened {a.his} eyes and listened.",
    "{sky} {a.intro} was [walking along the path|sitting in front of {a.his} {house}] "
    "and humming a song.",
    "One day, {a.intro} woke up early. {sky}",
    "One day, {a.intro} went for a walk near {p}. {sky}",
    "One day, {a.intro} looked [outside|up at the sky] and smiled. {sky}",
    "One {season} morning, {a.intro} woke up before everyone else. {sky}",
    "It was a beautiful {season} day. {sky} {a.intro} was sitting near {p}.",
    "It was early in the morning, and {folk} was still quiet. {sky} {a.intro} was already awake.",
    "On a fine {season} morning, {a.intro} ran out of {a.his} {house}. {sky}",
    "{sky} {a.intro} came out of {a.his} {house} and took a deep breath.",
    "It was {season}, and {sky_low} {a.intro} was happy to be outside.",
]
TOGETHER = [
    "Together, they loved to {like}.",
    "Both of them loved to {like}.",
    "Every day, they met near {p}, because both of them loved to {like}.",
]
ABOUT = [
    "{a.He} was a {trait} {a.kind}, and {a.he} loved to {like}.",
    "{a.He} loved to {like}.",
    "More than anything, {a.he} loved to {like}.",
    "{a.He} was {trait} and {trait2}, and everyone {in_folk} knew {a.him}.",
    "Everyone {in_folk} liked {a.him} because {a.he} was so {trait}.",
    "{a.He} was [small|young], but {a.he} was very {trait}.",
    "{a.His} best friend was {b.whole}, and the two of them loved to {like}.",
    "{a.He} liked to {like}, and {a.he} liked to do it with {a.his} friend {b.plain}.",
]
NIGHTS = [
    "That night, {a} fell asleep with a smile.",
    "That night, {a} slept very well.",
    "When the stars came out, {a} was already asleep.",
    "{a} went to bed tired and happy.",
    "And when {a} closed {a.his} eyes that night, {a.he} was still smiling.",
]
CALLED = ["named", "named", "called"]
CHILD_FAMILIES = ["{} mother and father", "{} family", "{} parents", "{} grandmother", "{} mother"]
CREATURE_FAMILIES = ["{} mother and father", "{} family", "{} brothers and sisters", "{} mother"]
ANY_DAY = [
    "one day",
    "one day",
    "one day",
    "one morning",
    "one afternoon",
    "one {season} day",
    "one bright {season} morning",
]
SAME_DAY = ["that morning", "later that day", "on that day", "that same day", "that afternoon"]
