package rlqs

// Sizes of the batches processed under the lock, for tests.
const (
	RematchedAtOnce = rulesBatch
	SurveyedAtOnce  = surveyBatch
)
