-- How our own sessions plan. The planner is kept to the indexes: it sees tables that grow and shrink by millions
-- between two looks at them. Every statement is written so that one plan is good for all its parameters.
-- In:  $1 whether for this transaction only (behind a pooler the session is not ours)
SELECT set_config('enable_seqscan', 'off', $1::boolean), set_config('enable_hashjoin', 'off', $1::boolean),
  set_config('enable_mergejoin', 'off', $1::boolean), set_config('jit', 'off', $1::boolean),
  set_config('enable_sort', 'off', $1::boolean), set_config('enable_incremental_sort', 'off', $1::boolean),
  set_config('plan_cache_mode', 'force_generic_plan', $1::boolean)
