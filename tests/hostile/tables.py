"""Bad tables, the options that read them, and options that contradict each other."""

KNOWN = "subject,hour,level\na,0,500\na,12,520\nb,0,610\nb,12,560\n"
WANTED = "subject,hour\na,6\nb,24\n"

FILES: dict[str, tuple[str, bytes]] = {
    "header": ("h.csv", b"subject,hour,level\n"),
    "text": ("t.csv", b"subject,hour,level\na,0,1\na,noon,2\n"),
    "hole": ("m.csv", b"subject,hour,level\na,0,\na,1,\n"),
    "infinite": ("i.csv", b"subject,hour,level\na,0,1\na,inf,2\n"),
    "overflow": ("o.csv", b"subject,hour,level\na,0,1\na,1e400,2\n"),
    "underscore": ("u.csv", b"subject,hour,level\na,0,1\na,1_0,2\n"),
    "twice": ("d.csv", b"subject,hour,hour,level\na,0,0,1\na,1,1,2\n"),
    "ragged": ("r.csv", b"subject,hour,level\na,0,1\na,1,2,3\n"),
    "short": ("s.csv", b"subject,hour,level\na,0,1\na,1\n"),
    "quote": ("q.csv", b'subject,hour,level\na,"0,1\na,1,2\n'),
    "unnamed": ("x.csv", b"a,0,1\na,1,2\nb,0,1\n"),
    "blanks": ("b.csv", b"subject hour level\na 0 1\na 1 2\n"),
    "colons": ("c.csv", b"subject:hour:level\na:0:1\na:1:2\n"),
    "ambiguous": ("k.csv", b"subject;hour;level\na;1,234;1\na;2,345;2\n"),
    "mixed": ("v.csv", b"subject;hour;level\na;1,5;1\na;2.5;2\n"),
    "two marks": ("w.csv", b"sub,ject;hour\na,0;1\na,1;2\n"),
    "latin": ("l.csv", "subject,hour,level\nJosé,0,1\n".encode("latin-1")),
    "nul": ("z.csv", b"subject,hour,level\na\x00,0,1\n"),
    "date": ("e.csv", b"subject,hour,level\na,2020-01-01,1\na,2020-01-02,2\n"),
    "word": ("y.xlsx", b"not a workbook"),
    "parquet": ("p.parquet", b"PAR1 not really"),
    "suffix": ("p.docx", b"subject,hour,level\na,0,1\n"),
    "old": ("p.xls", b"subject,hour,level\na,0,1\n"),
    "no name": ("g.csv", b"subject,hour,level\na,0,1\n,1,2\n"),
    "blank name": ("j.csv", b"subject,hour,level\na,0,1\n a,1,2\n"),
    "percent": ("pc.csv", b"subject,hour,level\na,0,1\na,5%,2\n"),
    "units": ("un.csv", b"subject,hour,level\na,0 h,1\na,5 h,2\n"),
    "no-break name": ("nb.csv", "subject,hour,level\na\u00a0,0,1\na,1,2\n".encode()),
    "without mark": ("wm.csv", "subject,hour,level\na,0,1\n".encode("utf-16-le")),
    "comment": ("co.csv", b"# made in 2024\nsubject,hour,level\na,0,1\na,1,2\n"),
    "minus": ("mi.csv", "subject,hour,level\na,\u22121,1\na,1,2\n".encode()),
    "hexadecimal": ("hx.csv", b"subject,hour,level\na,0x1,1\na,1,2\n"),
    "spaced": ("sd.csv", b"subject,hour,level\na,1 234,1\na,1,2\n"),
    "points": ("pt.csv", b"subject;hour;level\na;1.234.567;1\na;2;2\n"),
    "zones": ("zo.csv", b"subject,day,level\na,2024-01-01T08:00Z,1\na,2024-01-02T08:00,2\n"),
    "one class": ("oc.csv", b"subject,hour,level\na,0,yes\na,1,yes\nb,0,yes\nb,1,yes\n"),
    "negative labels": ("nl.csv", b"subject,hour,level\na,0,-1\na,1,1\nb,0,1\nb,1,-1\n"),
    "billion labels": ("bl.csv", b"subject,hour,level\na,0,0\na,1,1000000000\nb,0,1\nb,1,0\n"),
    "own categories": ("oo.csv", b"subject,hour,kind,level\na,0,p,1\na,1,p,2\nb,0,q,1\nb,1,q,3\n"),
    "constant": ("cn.csv", b"subject,hour,level\na,0,1\na,1,1\nb,0,1\nb,1,1\n"),
    "single": ("sg.csv", b"subject,hour,level\na,0,1\nb,1,2\n"),
    "american": ("am.csv", b"subject,hour,level\na,02/20/2024,1\na,03/01/2024,2\n"),
    "huge": ("hu.csv", b"subject,hour,level\na,0,1\na,1e200,2\na,1,1\n"),
}
"""Bad files by what is wrong with them."""

TABLES: dict[str, tuple[str, str]] = {
    "nowhere": ("nowhere", "there is no such file|does not exist"),
    "folder": ("folder", "this is a folder|is a directory"),
    "empty": ("empty", "empty file"),
    "binary": ("binary", "UTF-8|text"),
    "text": ("text", "'hour': got 'noon' at row 3"),
    "infinite": ("infinite", "'hour': got 'inf' at row 3"),
    "overflow": ("overflow", "'hour': got '1e400' at row 3"),
    "underscore": ("underscore", "'hour': got '1_0' at row 3"),
    "twice": ("twice", "'hour': got 2 columns of this name"),
    "ragged": ("ragged", "got 4 cells at row 3, expected 3.*--delimiter"),
    "short": ("short", "got 2 cells at row 3, expected 3"),
    "quote": ("quote", "quotation mark|cells at row"),
    "unnamed": ("unnamed", "there is no such column; the table has a, 0, 1"),
    "blanks": ("blanks", "separated by ' ': give --delimiter ' '"),
    "colons": ("colons", "separated by ':': give --delimiter ':'"),
    "ambiguous": ("ambiguous", "'hour': got '1,234'.*--decimal ','"),
    "mixed": ("mixed", "'hour': got '1,5'.*--decimal ','"),
    "two marks": ("two marks", "separated by ',' or by ';'.*--delimiter"),
    "latin": ("latin", "UTF-8"),
    "nul": ("nul", "bytes that are none"),
    "word": ("word", r"bnnp\[excel\]|expected a table of the kind .xlsx"),
    "parquet": ("parquet", "expected a table of the kind .parquet"),
    "suffix": ("suffix", "ends in '.docx', expected a table"),
    "old": ("old", "ends in '.xls', expected a table"),
    "no name": ("no name", "'subject': got an empty cell at row 3"),
    "blank name": ("blank name", "'subject': got ' a' at row 3.*remove the blanks"),
    "percent": ("percent", "'hour': got '5%' at row 3"),
    "units": ("units", "'hour': got '0 h' at row 2"),
    "no-break name": ("no-break name", "names without blanks around them"),
    "without mark": ("without mark", "UTF-8"),
    "comment": ("comment", "there is no such column; the table has # made in 2024"),
    "minus": ("minus", "'hour': got '\u22121' at row 2"),
    "hexadecimal": ("hexadecimal", "'hour': got '0x1' at row 2"),
    "spaced": ("spaced", "'hour': got '1 234' at row 2"),
    "points": ("points", "'hour': got '1.234.567' at row 2"),
    "american": ("american", "'hour': got '02/20/2024' at row 2"),
}
"""What is wrong with a table: the file, and what the message must have. Every reader of tables must refuse it."""

TRAIN = ["--task", "subject", "--x", "hour", "--y", "level", "--hidden", "4", "--steps", "2", "--quiet"]
QUICK = ["--method", "ensemble", "--steps", "2", "--quiet"]
COMPARE = ["--task", "subject", "--x", "hour", "--y", "level", "--quiet"]
COLUMN_OPTIONS: list[tuple[str, str, list[str]]] = [
    ("train", "train", ["{bad}", *TRAIN]),
    ("predict-context", "predict", ["{model}", "--context", "{bad}", "--targets", "{wanted}"]),
    ("predict-targets", "predict", ["{model}", "--context", "{known}", "--targets", "{bad}"]),
    ("infer-context", "infer", ["{model}", "--context", "{bad}", "--targets", "{wanted}", *QUICK]),
    ("infer-targets", "infer", ["{model}", "--context", "{known}", "--targets", "{bad}", *QUICK]),
    ("evaluate", "evaluate", ["{model}", "{bad}"]),
    ("app", "app", ["{model}", "--table", "{bad}", "--export", "page.html"]),
    ("compare", "compare", ["{bad}", *COMPARE]),
    ("sample", "sample", ["{model}", "--at", "{bad}"]),
]
"""Where tables are read."""

PREDICT = ["predict", "{model}", "--context", "{known}", "--targets"]
CONTRADICTIONS: list[tuple[list[str], str]] = [
    (["train", "{known}", "--source", "gp"], "either a table or --source"),
    (["train"], "either a table or --source"),
    (["train", "{known}", "--x", "hour", "--y", "level"], "--task"),
    (["train", "{zones}", *TRAIN, "--x", "day"], "column"),
    (["train", "{zones}", *TRAIN[:2], "--x", "day", *TRAIN[4:]], "times that all have a zone, or none"),
    (["train", "{one class}", *TRAIN], "two classes or more"),
    (["train", "{negative labels}", *TRAIN, "--likelihood", "categorical"], "--likelihood: got the labels -1, 1"),
    (["train", "{billion labels}", *TRAIN, "--likelihood", "categorical"], "--likelihood: got the labels 0, 1, 1e"),
    (["train", "{own categories}", *TRAIN, "--x", "kind"], "categories that 2 data sets share"),
    (["train", "{constant}", *TRAIN], "level: got the value 1 in every row"),
    (["train", "{single}", *TRAIN], "--skip-small"),
    (["train", "{single}", *TRAIN, "--skip-small"], "no data set of 2 points or more"),
    (["train", "{known}", *TRAIN, "--delimiter", ",", "--decimal", ","], "--delimiter: got ',', which is the decimal"),
    (["train", "{known}", *TRAIN, "--noise", "1e-300"], "--noise: got 1e-300"),
    (["train", "{known}", *TRAIN[:6], "--hidden", "10000000,10000000"], "--hidden: got a request for .* GB"),
    (["train", "{known}", *TRAIN, "--samples", "10000000000000"], "more memory than the machine has"),
    (["sample", "{model}", "--points", "100000000000"], "sample: got a request for .* GB"),
    (["predict", "model", "--context", "{known}", "--targets", "{wanted}"], "^error: model: there is no such file"),
    (["experiment", "posterior_quality", "--workers", "-2"], "--workers: got -2"),
    (["compare", "{constant}", *COMPARE, "--folds", "2"], "level: got the value 1 in every row"),
    (["compare", "{single}", *COMPARE], "--folds: got 4 for 0 data sets"),
    (["compare", "{known}", *COMPARE, "--folds", "3"], "--folds: got 3 for 2 data sets"),
    *[
        (["train", "--source", "gp", *words.split()], words.split()[0])
        for words in ("--task a", "--x a", "--y a", "--drop-missing", "--skip-small", "--delimiter ;", "--decimal ,")
    ],
    *[
        (["train", "--source", "gp", "--model", "cnp", f"--{option}", value], f"--{option}")
        for option, value in {"prior": "unitwise", "prior-start": "spread", "learnability": "0.5", "noise": "1"}.items()
    ],
    (["train", "--source", "gp", "--model", "cnp", "--prior-lr-multiplier", "3"], "--prior-lr-multiplier"),
    (["train", "{known}", *TRAIN, "--likelihood", "bernoulli", "--noise", "0.1"], "--noise"),
    (["train", "{known}", *TRAIN, "--likelihood", "categorical", "--max-noise", "1"], "--max-noise"),
    (["train", "{known}", *TRAIN, "--noise", "0.5", "--max-noise", "0.1"], "--max-noise"),
    (["train", "--source", "gp", "--likelihood", "categorical"], "--likelihood"),
    (["evaluate", "{model}"], "--task"),
    (["evaluate", "{model}", "{known}", "--source", "gp"], "--source"),
    (["evaluate", "{model}", "--source", "gp", "--task", "subject"], "--task"),
    (["evaluate", "{model}", "--source", "gp", "--role", "part"], "--role"),
    (["evaluate", "{model}", "--source", "gp", "--drop-missing"], "--drop-missing"),
    (["evaluate", "{model}", "--source", "sawtooth-tests", "--context-share", "0.5"], "--context-share"),
    (["evaluate", "{model}", "{known}", "--out", "{known}"], "--out"),
    *[
        (["sample", "{model}", "--at", "{wanted}", *words.split()], words.split()[0])
        for words in ("--low 0", "--high 9", "--points 5")
    ],
    *[
        (["sample", "{model}", *words.split()], words.split()[0])
        for words in ("--drop-missing", "--delimiter ;", "--decimal ,")
    ],
    *[
        (["app", "{model}", "--export", "p.html", *words.split()], words.split()[0])
        for words in ("--task a", "--drop-missing", "--skip-small", "--delimiter ;", "--decimal ,", "--port 8080")
    ],
    (["app", "{model}", "--source", "gp", "--table", "{known}", "--export", "p.html"], "--source"),
    (["app", "{model}", "--source", "nowhere", "--export", "p.html"], "--source"),
    (["app", "{model}", "{peer}", "--export", "p.html"], "no prior over weights"),
    (["app"], "[Mm]odel|MODEL"),
    (["sample", "{model}", "--low", "5", "--high", "1"], "--low"),
    (["sample", "{model}", "--at", "{header}"], "no rows"),
    (["train", "{header}", *TRAIN], "no rows"),
    (["train", "{hole}", *TRAIN], "empty cell in every row"),
    ([*PREDICT, "{date}"], "'hour': got '2020-01-01' at row 2"),
    (["evaluate", "{model}", "{header}"], "no rows"),
    ([*PREDICT, "{header}"], "no rows"),
    (["sample", "{model}", "--at", "{huge}"], "got 1e\\+200 at row 3, column 'hour'"),
    ([*PREDICT, "{huge}"], "got 1e\\+200 at row 3, column 'hour'"),
    (["predict", "{model}", "--context", "{huge}", "--targets", "{wanted}"], "got 1e\\+200 at row 3, column 'hour'"),
    ([*PREDICT, "{strangers}"], "expected a name that is in both"),
    ([*PREDICT, "{anonymous}"], "'subject': there is no such column, but .*known.csv has it"),
    (["predict", "{model}", "--context", "{anonymous}", "--targets", "{wanted}"], "'level'|'subject'"),
    ([*PREDICT, "{taken}"], "'level_mean': the table has it already"),
    ([*PREDICT, "{marked}"], "'from_prior': the table has it already"),
    ([*PREDICT, "{wanted}", "--out", "{wanted}"], "--out"),
    ([*PREDICT, "{wanted}", "--out", "{known}"], "--out"),
    ([*PREDICT, "{wanted}", "--out", "p.xlsx"], "--out"),
    ([*PREDICT, "{wanted}", "--out", "p.CSV.gz"], "--out"),
    (["predict", "{model}", "--context", "{known}"], "--targets"),
    (["predict", "{model}", "--targets", "{wanted}"], "--context"),
    (["predict"], "[Mm]odel|MODEL"),
    (["infer", "{peer}", "--context", "{known}", "--targets", "{wanted}"], "no prior over weights"),
    (["sample", "{peer}"], "no prior over weights"),
    (["predict", "{model}", "--nonsense", "3"], "--nonsense"),
    (["nonsense"], "nonsense"),
]
"""Commands that no verb can follow, and what the message must have."""

OTHERS = {
    "strangers": ("strangers.csv", b"subject,hour\n01,6\n02,7\n"),
    "anonymous": ("anonymous.csv", b"hour\n6\n"),
    "taken": ("taken.csv", b"subject,hour,level_mean\na,6,1\n"),
    "marked": ("marked.csv", b"subject,hour,from_prior\na,6,1\n"),
    "empty": ("empty.csv", b""),
    "picture": ("picture.png", b"\x89PNG\r\n\x1a\n"),
    "binary": ("binary.csv", b"\x89PNG\r\n\x1a\n\xff\xfe\x00\x00"),
    "known": ("known.csv", KNOWN.encode()),
    "wanted": ("wanted.csv", WANTED.encode()),
}
"""Further files that commands name."""
