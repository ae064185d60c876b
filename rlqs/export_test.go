package rlqs

// Sizes of the batches processed under the lock, for tests.
const (
	RulesBatch  = rulesBatch
	SurveyBatch = surveyBatch
)
