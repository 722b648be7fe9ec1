"""Questions that a newcomer would ask, in a newcomer's words, written before they were tried."""

QUESTIONS = {
    "how do I install it": ["get_started"],
    "predict a new patient from my own csv": ["faq", "get_started", "own_data", "new_subjects"],
    "how many patients do I need": ["how_many"],
    "do all subjects need the same time points": ["faq"],
    "what is a prior": ["learned_prior", "glossary"],
    "can I trust the intervals": ["trust"],
    "what does outside_training mean": ["faq", "own_data", "get_started", "trust"],
    "how long does training take": ["faq", "training"],
    "do I need a GPU": ["faq"],
    "missing values in my table": ["faq", "own_data", "columns"],
    "categorical covariates such as sex": ["columns", "own_data"],
    "concentrations cannot be negative": ["faq", "columns", "own_data"],
    "difference to a mixed model lme4": ["coming_from"],
    "compare with a gaussian process": ["faq", "coming_from", "own_data", "tutorials/meta_optimisation"],
    "add new measurements later without retraining": ["new_subjects", "large_contexts", "tutorials/million_points"],
    "what does LPPD mean": ["glossary"],
    "save and load a model": ["faq", "models", "reference/models", "get_started"],
    "use it with scikit-learn": ["coming_from", "own_data", "reference/tables"],
    "error no data set has known points": ["faq", "troubleshooting"],
    "expected a name that is in both, as it is written": ["troubleshooting"],
    "very large data that does not fit into memory": ["scale", "large_contexts"],
    "how do I cite it": ["faq"],
    "forecast beyond the last time point": ["faq", "trust"],
}
"""Question -> pages, one of which must be among the first three that the site's search finds."""
