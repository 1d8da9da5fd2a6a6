"""Published systems as data: a YAML file per system, with its sizes, their miniatures, and the recipe that was published.

`data.py` reads and merges the files, `preset.py` gives them types. A file has

    title, about, sources    what the system is, and where the numbers come from
    recipe                   how it was trained, in short facts; a size may replace some
    notes                    what is doubtful or not expressed
    sizes                    name -> published counts and `model`, a configuration in the words of model/config.py
    minis                    name -> `model` of a few million parameters with the same parts, for a CPU

A `model` may start from another preset (`preset: NAME`) and say only what differs.
"""
