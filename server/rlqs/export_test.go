package rlqs

// What a lock is held for, for tests.
const (
	RematchedAtOnce = rulesBatch
	SurveyedAtOnce  = surveyBatch
)
