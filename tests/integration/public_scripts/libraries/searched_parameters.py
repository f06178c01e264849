"""Threads of the driver start Spark jobs of their own: a grid search of scikit-learn, and one of Hyperopt."""

import numpy as np
from hyperopt import SparkTrials, fmin, hp, tpe
from joblib import Parallel, delayed, parallel_backend
from joblibspark import register_spark
from pyspark.sql import SparkSession
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier

spark = SparkSession.builder.appName("searched parameters").getOrCreate()
register_spark()
with parallel_backend("spark", n_jobs=2):
    print(Parallel()(delayed(pow)(number, 2) for number in range(8)))
    features, labels = load_iris(return_X_y=True)
    grid = GridSearchCV(DecisionTreeClassifier(random_state=1), {"max_depth": [1, 2, 3]}, cv=3)
    grid.fit(features, labels)
    print(grid.best_params_, [f"{score:.4f}" for score in grid.cv_results_["mean_test_score"]])

# One at a time, as each trial is drawn from what the earlier ones have found.
best = fmin(
    lambda x: (x - 3) ** 2,
    hp.uniform("x", -10, 10),
    algo=tpe.suggest,
    max_evals=6,
    trials=SparkTrials(parallelism=1, spark_session=spark),
    rstate=np.random.default_rng(1),
    show_progressbar=False,
)
print({name: f"{value:.6f}" for name, value in best.items()})
spark.stop()
