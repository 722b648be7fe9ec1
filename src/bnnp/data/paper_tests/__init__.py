"""The paper's fixed test sets; `bnnp/tasks/datasets/paper_tests.py` reads them."""
