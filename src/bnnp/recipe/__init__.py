"""The one recipe: from tasks to a model, with every choice made by the tasks themselves."""

from bnnp.recipe.learning import Judged as Judged
from bnnp.recipe.learning import Learned as Learned
from bnnp.recipe.learning import learn as learn
from bnnp.recipe.models import ACTIVATIONS as ACTIVATIONS
from bnnp.recipe.models import default_models as default_models
