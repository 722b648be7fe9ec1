"""Questions that a newcomer would ask, in a newcomer's words, written before they were tried."""

QUESTIONS = {
    "how do I install it": ["get_started#install"],
    "predict a new patient from my own csv": ["get_started"],
    "how many patients do I need": ["how_many"],
    "do all subjects need the same time points": [
        "faq#do-all-data-sets-need-the-same-number-of-points-or-the-same-time-points"
    ],
    "what is a prior": ["learned_prior"],
    "can I trust the intervals": ["trust"],
    "what does outside_training mean": ["own_data#the-columns-from_prior-and-outside_training"],
    "how long does training take": ["training", "get_started#how-long-it-takes"],
    "do I need a GPU": ["faq#do-i-need-a-gpu"],
    "missing values in my table": ["own_data#missing-values"],
    "categorical covariates such as sex": ["columns"],
    "concentrations cannot be negative": ["columns#outputs-that-cannot-be-negative"],
    "difference to a mixed model lme4": ["coming_from#from-a-mixed-model-lme4-nlme-or-statsmodels"],
    "compare with a gaussian process": ["coming_from#from-a-gaussian-process-how-the-two-compare"],
    "add new measurements later without retraining": ["new_subjects#add-new-measurements-later"],
    "what does LPPD mean": ["glossary#lppd"],
    "save and load a model": ["own_data#save-and-load-a-model"],
    "use it with scikit-learn": ["coming_from#from-scikit-learn", "own_data#in-scikit-learns-words"],
    "error no data set has known points": ["faq#what-does-the-error-no-data-set-has-known-points-mean"],
    "expected a name that is in both, as it is written": [
        "troubleshooting#column-got-in-and-in-expected-a-name-that-is-in-both-as-it-is-written"
    ],
    "very large data that does not fit into memory": ["scale", "large_contexts"],
    "how do I cite it": ["faq#how-do-i-cite-it"],
    "forecast beyond the last time point": ["trust#1-is-it-a-forecast-beyond-the-range-of-training"],
}
"""Question -> the page that answers it, or the part of one. The page must be among the first three hits, and
the part among the first two of its page."""
