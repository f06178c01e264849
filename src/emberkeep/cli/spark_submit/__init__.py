"""``emberkeep-spark-submit``: what tools that start ``spark-submit`` call instead."""
