-- Every statement of the library. A block is found by its name; {name} inserts another block.

-- name: save
-- One round trip for any number of pictures: memory, image row, vector of an embedded twin, bell.
-- An exact repeat (same save_key) inserts nothing and comes back as the row that is there.
WITH given AS (
    SELECT * FROM jsonb_to_recordset($1::jsonb) AS given (
        image_id uuid, memory_id uuid, save_key text, namespace text, text text, source_type text,
        file_path text, sha256 text, mime_type text, width int, height int,
        file_size_bytes bigint, caption text, source_tool text, tags jsonb, metadata jsonb
    )
), image AS (
    INSERT INTO memories_image (
        id, memory_id, save_key, namespace, file_path, sha256, mime_type, width, height,
        file_size_bytes, caption, source_tool, tags, embedding, embedding_model, embedded_at
    )
    SELECT
        given.image_id, given.memory_id, given.save_key, given.namespace, given.file_path,
        given.sha256, given.mime_type, given.width, given.height, given.file_size_bytes,
        given.caption, given.source_tool, given.tags, twin.embedding, twin.embedding_model,
        CASE WHEN twin.embedding IS NOT NULL THEN now() END
    FROM given
    LEFT JOIN LATERAL (
        {twin}
    ) AS twin ON true
    ON CONFLICT (save_key) DO NOTHING
    RETURNING id, memory_id, save_key, sha256, file_path, embedding_status
), memory AS (
    INSERT INTO memories (id, text, source_type, metadata)
    SELECT given.memory_id, given.text, given.source_type, given.metadata
    FROM given
    JOIN image ON image.id = given.image_id
), healed AS (
    UPDATE memories_image
    SET embedding_error = NULL, embedding_error_code = NULL, attempts = 0,
        next_attempt_at = now(), file_path = given.file_path
    FROM given
    WHERE memories_image.sha256 = given.sha256
        AND memories_image.embedding_error_code IN ('blob_missing', 'blob_corrupt')
        AND memories_image.embedding IS NULL
    RETURNING memories_image.id
), bell AS (
    SELECT pg_notify('vision_worker_pending', '')
    WHERE EXISTS (SELECT FROM image WHERE embedding_status = 'pending')
        OR EXISTS (SELECT FROM healed)
)
SELECT
    image.id, image.memory_id, image.save_key, image.sha256, image.file_path,
    image.embedding_status, false AS archived, (SELECT count(*) FROM bell) AS rung
FROM image
UNION ALL
SELECT
    known.id, known.memory_id, known.save_key, known.sha256, known.file_path,
    CASE WHEN healed.id IS NULL THEN known.embedding_status ELSE 'pending' END,
    memories.is_archived, 0
FROM (SELECT DISTINCT save_key FROM given) AS asked
JOIN memories_image AS known USING (save_key)
JOIN memories ON memories.id = known.memory_id
LEFT JOIN healed ON healed.id = known.id

-- name: twin
-- The vector of an image of the same bytes, where there is one already.
SELECT embedding, embedding_model
FROM memories_image
JOIN vision_models ON vision_models.key = embedding_model AND vision_models.active
WHERE sha256 = given.sha256
    AND namespace = given.namespace
    AND embedding IS NOT NULL
LIMIT 1

-- name: attach
-- An image for a memory that somebody else has made; without a vector it is pending.
WITH given AS (
    SELECT
        $1::uuid AS memory_id, $2::text AS namespace, $3::text AS file_path, $4::text AS sha256,
        $12::text::vector AS embedding, $13::text AS embedding_model
), image AS (
    INSERT INTO memories_image (
        memory_id, namespace, file_path, sha256, mime_type, width, height, file_size_bytes,
        caption, source_tool, tags, embedding, embedding_model, embedded_at
    )
    SELECT
        given.memory_id, given.namespace, given.file_path, given.sha256, $5::text, $6::int,
        $7::int, $8::bigint, $9::text, $10::text, $11::jsonb, vector.embedding,
        vector.embedding_model, CASE WHEN vector.embedding IS NOT NULL THEN now() END
    FROM given
    JOIN memories ON memories.id = given.memory_id
    LEFT JOIN LATERAL (
        (
            SELECT given.embedding, given.embedding_model WHERE given.embedding IS NOT NULL
        ) UNION ALL (
            {twin}
        )
        LIMIT 1
    ) AS vector ON true
    ON CONFLICT (memory_id) DO NOTHING
    RETURNING id, memory_id, file_path, sha256, created_at, embedding_status
), memory AS (
    UPDATE memories
    SET metadata = coalesce(metadata, '{}') || jsonb_build_object(
        'image_id', image.id, 'image_path', image.file_path, 'image_sha256', image.sha256
    )
    FROM image WHERE memories.id = image.memory_id
), bell AS (
    SELECT pg_notify('vision_worker_pending', '') FROM image WHERE embedding_status = 'pending'
)
SELECT id, created_at, embedding_status, (SELECT count(*) FROM bell) AS rung FROM image

-- name: detach
DELETE FROM memories_image WHERE namespace = $1 AND id = $2::uuid RETURNING id

-- name: get_by_sha256
SELECT {record_columns}
FROM memories_image AS images
JOIN memories ON memories.id = images.memory_id
WHERE images.namespace = $1 AND images.sha256 = $2 AND memories.is_archived IS NOT TRUE
ORDER BY images.created_at, images.id
LIMIT 1

-- name: release_save_keys
-- Rows of archived memories give up their identity, so that the same picture can be saved anew.
UPDATE memories_image
SET save_key = NULL
FROM memories
WHERE memories.id = memory_id AND memories.is_archived AND save_key = ANY($1::text[])

-- name: record_columns
images.id, images.memory_id, images.file_path, images.sha256, images.mime_type, images.width,
images.height, images.file_size_bytes, images.caption, images.embedding_model,
images.tags::text AS tags, images.created_at, memories.text, memories.source_type,
images.source_tool, images.namespace, images.embedding_status, images.embedding_error,
images.embedding_error_code, images.attempts, images.embedded_at

-- name: get
SELECT {record_columns}
FROM memories_image AS images
JOIN memories ON memories.id = images.memory_id
WHERE images.namespace = $1 AND (images.id = $2::uuid OR images.memory_id = $3::uuid)

-- name: filtered
-- $1 namespace, $2 tags (all of), $3 source type, $4 created from, $5 created before
images.namespace = $1
AND memories.is_archived IS NOT TRUE
AND ($2::jsonb IS NULL OR images.tags @> $2::jsonb)
AND ($3::text IS NULL OR memories.source_type = $3::text)
AND ($4::timestamptz IS NULL OR images.created_at >= $4::timestamptz)
AND ($5::timestamptz IS NULL OR images.created_at < $5::timestamptz)

-- name: list_newest
SELECT {record_columns}
FROM memories_image AS images
JOIN memories ON memories.id = images.memory_id
WHERE {filtered}
    AND ($6::timestamptz IS NULL OR images.created_at <= $6::timestamptz)
    AND ($7::uuid IS NULL OR images.created_at < $6::timestamptz OR images.id > $7::uuid)
ORDER BY images.created_at DESC, images.id
LIMIT $8

-- name: list_oldest
SELECT {record_columns}
FROM memories_image AS images
JOIN memories ON memories.id = images.memory_id
WHERE {filtered}
    AND ($6::timestamptz IS NULL OR images.created_at >= $6::timestamptz)
    AND ($7::uuid IS NULL OR images.created_at > $6::timestamptz OR images.id < $7::uuid)
ORDER BY images.created_at, images.id DESC
LIMIT $8

-- name: delete
WITH image AS (
    SELECT id, memory_id, sha256, namespace FROM memories_image
    WHERE namespace = $1 AND (id = $2::uuid OR memory_id = $3::uuid)
    FOR UPDATE
), memory AS (
    DELETE FROM memories USING image WHERE memories.id = image.memory_id
)
SELECT id, memory_id, sha256 FROM image

-- name: is_referenced
SELECT EXISTS (SELECT FROM memories_image WHERE sha256 = $1)

-- name: counts
-- What a query needs to know before it encodes anything. Each branch reads its partial index.
WITH waiting AS (
    SELECT images.embedding_status AS status
    FROM memories_image AS images
    JOIN memories ON memories.id = images.memory_id
    WHERE images.embedding_status = 'pending' AND {filtered}
    UNION ALL
    SELECT images.embedding_status
    FROM memories_image AS images
    JOIN memories ON memories.id = images.memory_id
    WHERE images.embedding_status = 'failed' AND {filtered}
)
SELECT
    models.key AS model, models.name AS model_name, models.framing, models.input_size,
    (SELECT count(*) FROM waiting WHERE status = 'pending') AS pending,
    (SELECT count(*) FROM waiting WHERE status = 'failed') AS failed,
    EXISTS (
        SELECT FROM vision_workers
        WHERE state IN ('ready', 'reembedding') AND 'query' = ANY(queues)
            AND last_seen_at > now() - make_interval(secs => $6)
    ) AS encoder_alive
FROM (SELECT) AS always
LEFT JOIN vision_models AS models ON models.active

-- name: ranked
-- $6 names of the model, $7 an image to leave out
images.embedding IS NOT NULL
AND images.embedding_model = ANY($6::text[])
AND ($7::uuid IS NULL OR images.id <> $7::uuid)
AND {filtered}

-- name: count_ranked
-- Stops counting at $8: it only chooses the plan.
SELECT count(*) FROM (
    SELECT FROM memories_image AS images
    JOIN memories ON memories.id = images.memory_id
    WHERE {ranked}
    LIMIT $8
) AS found

-- name: candidate
images.id, images.embedding <=> $8::text::vector AS distance

-- name: hits
-- One page of the candidates. A vector of zeros has no distance (NaN) to anything.
SELECT
    images.memory_id, images.id, images.file_path, images.sha256, images.caption, memories.text,
    memories.source_type, images.created_at, images.tags::text AS tags, page.distance,
    (SELECT count(*) FROM candidates) AS candidates
FROM (
    SELECT * FROM candidates
    WHERE distance < 'NaN'
    ORDER BY distance, id
    LIMIT $9::int OFFSET $10::int
) AS page
JOIN memories_image AS images USING (id)
JOIN memories ON memories.id = images.memory_id
ORDER BY page.distance, images.id

-- name: nearest_exact
-- Every row under the filter is compared: right for small tables and selective filters.
WITH candidates AS MATERIALIZED (
    SELECT {candidate}
    FROM memories_image AS images
    JOIN memories ON memories.id = images.memory_id
    WHERE {ranked}
)
{hits}

-- name: nearest_hnsw
-- The inner order is by distance alone: HNSW is skipped for any other.
WITH candidates AS MATERIALIZED (
    SELECT {candidate}
    FROM memories_image AS images
    JOIN memories ON memories.id = images.memory_id
    WHERE {ranked}
    ORDER BY images.embedding <=> $8::text::vector
    LIMIT $11::int
)
{hits}

-- name: embedding_of
SELECT embedding::text AS embedding, embedding_model, embedding_status
FROM memories_image WHERE namespace = $1 AND id = $2::uuid

-- name: status
-- The embedded rows are those that are not in the two partial indexes: none of them is read.
WITH pending AS (
    SELECT
        count(*) AS images,
        extract(epoch FROM now() - min(created_at))::float8 AS seconds,
        extract(epoch FROM now() - min(claimable_at))::float8 AS claimable_seconds
    FROM memories_image
    WHERE namespace = $1 AND embedding_status = 'pending'
), failed AS (
    SELECT count(*) AS images
    FROM memories_image
    WHERE namespace = $1 AND embedding_status = 'failed'
), every AS (
    SELECT count(*) AS images FROM memories_image WHERE namespace = $1
)
SELECT
    (SELECT key FROM vision_models WHERE active) AS model,
    pending.images AS pending,
    every.images - pending.images - failed.images AS embedded,
    failed.images AS failed,
    pending.seconds AS oldest_pending_seconds,
    CASE WHEN pending.claimable_seconds >= 0 THEN pending.claimable_seconds END
        AS oldest_claimable_seconds,
    (
        SELECT count(*) FROM vision_workers
        WHERE state IN ('ready', 'reembedding')
            AND last_seen_at > now() - make_interval(secs => $2)
    ) AS workers
FROM pending, failed, every

-- name: failures
SELECT embedding_error_code AS code, count(*) AS images, min(embedding_error) AS example
FROM memories_image
WHERE namespace = $1 AND embedding_status = 'failed'
GROUP BY embedding_error_code ORDER BY images DESC

-- name: claim
-- Attempts are counted here, before the work: a row that kills its worker is found out.
UPDATE memories_image
SET lease_token = $1, lease_expires_at = now() + make_interval(secs => $2),
    attempts = attempts + 1
FROM (
    SELECT id FROM memories_image
    WHERE embedding_status = 'pending' AND claimable_at <= now()
        AND EXISTS (SELECT FROM vision_models WHERE key = $4 AND active)
    ORDER BY claimable_at
    LIMIT $3
    FOR UPDATE SKIP LOCKED
) AS due
WHERE memories_image.id = due.id
RETURNING memories_image.id, file_path, sha256, attempts

-- name: renew
UPDATE memories_image
SET lease_expires_at = now() + make_interval(secs => $2)
WHERE lease_token = ANY($1::uuid[]) AND embedding_status = 'pending'

-- name: complete
UPDATE memories_image
SET embedding = done.embedding, embedding_model = $2, embedded_at = now(),
    embedding_error = NULL, embedding_error_code = NULL, next_attempt_at = NULL,
    lease_token = NULL, lease_expires_at = NULL
FROM unnest($3::uuid[], $4::vector[]) AS done (id, embedding)
WHERE memories_image.id = done.id AND lease_token = $1 AND memories_image.embedding IS NULL
    AND EXISTS (SELECT FROM vision_models WHERE key = $2 AND active)
RETURNING memories_image.id

-- name: fail
UPDATE memories_image
SET embedding_error = $3, embedding_error_code = $4,
    next_attempt_at = now() + make_interval(secs => $5),
    lease_token = NULL, lease_expires_at = NULL
WHERE id = $2 AND lease_token = $1 AND embedding IS NULL
RETURNING id

-- name: release
-- Given back unharmed: the attempt does not count.
UPDATE memories_image
SET attempts = greatest(attempts - 1, 0), lease_token = NULL, lease_expires_at = NULL
WHERE lease_token = $1 AND id = ANY($2::uuid[]) AND embedding IS NULL
RETURNING id

-- name: due
SELECT count(*) FROM memories_image
WHERE embedding_status = 'pending' AND claimable_at <= now()

-- name: retry
WITH retried AS (
    UPDATE memories_image
    SET embedding_error = NULL, embedding_error_code = NULL, attempts = 0, next_attempt_at = now()
    WHERE namespace = $1 AND embedding_status = 'failed'
        AND ($2::text IS NULL OR embedding_error_code = $2::text)
    RETURNING id
), bell AS (
    SELECT pg_notify('vision_worker_pending', '') WHERE EXISTS (SELECT FROM retried)
)
SELECT count(*), (SELECT count(*) FROM bell) AS rung FROM retried

-- name: register_model
-- The first model of a database becomes the active one.
INSERT INTO vision_models (key, name, source, framing, native_dim, input_size, active)
SELECT $1, $2, $3, $4, $5, $6, NOT EXISTS (SELECT FROM vision_models WHERE active)
ON CONFLICT DO NOTHING

-- name: active_model
SELECT key, name, source, framing FROM vision_models WHERE active

-- name: models
SELECT key, active, target FROM vision_models ORDER BY created_at

-- name: aim
-- The model that is to replace the active one; NULL calls it off.
UPDATE vision_models SET target = (key = $1 AND NOT active)
WHERE target IS DISTINCT FROM (key = $1 AND NOT active)

-- name: is_target
SELECT EXISTS (SELECT FROM vision_models WHERE key = $1 AND target)

-- name: reembed_enlist
INSERT INTO vision_reembeddings (model_key, image_id)
SELECT $1, id FROM memories_image AS images
WHERE NOT EXISTS (
    SELECT FROM vision_reembeddings WHERE model_key = $1 AND image_id = images.id
)
ON CONFLICT DO NOTHING

-- name: reembed_claim
UPDATE vision_reembeddings AS jobs
SET lease_token = $1, claimable_at = now() + make_interval(secs => $2),
    attempts = jobs.attempts + 1
FROM (
    SELECT image_id FROM vision_reembeddings
    WHERE model_key = $4 AND claimable_at <= now()
    ORDER BY claimable_at
    LIMIT $3
    FOR UPDATE SKIP LOCKED
) AS due
JOIN memories_image AS images ON images.id = due.image_id
WHERE jobs.image_id = due.image_id AND jobs.model_key = $4
RETURNING images.id, images.file_path, images.sha256, jobs.attempts

-- name: reembed_renew
UPDATE vision_reembeddings SET claimable_at = now() + make_interval(secs => $2)
WHERE lease_token = ANY($1::uuid[])

-- name: reembed_complete
UPDATE vision_reembeddings AS jobs
SET embedding = done.embedding, claimable_at = NULL, lease_token = NULL
FROM unnest($3::uuid[], $4::vector[]) AS done (id, embedding)
WHERE jobs.image_id = done.id AND jobs.model_key = $2 AND jobs.lease_token = $1
RETURNING jobs.image_id AS id

-- name: reembed_fail
UPDATE vision_reembeddings
SET error = $3, error_code = $4, claimable_at = now() + make_interval(secs => $5),
    lease_token = NULL
WHERE image_id = $2 AND lease_token = $1
RETURNING image_id

-- name: reembed_release
UPDATE vision_reembeddings
SET attempts = greatest(attempts - 1, 0), claimable_at = now(), lease_token = NULL
WHERE lease_token = $1 AND image_id = ANY($2::uuid[])

-- name: reembed_progress
SELECT
    count(*) FILTER (WHERE jobs.claimable_at IS NULL AND jobs.image_id IS NOT NULL) AS done,
    count(*) AS total
FROM memories_image AS images
LEFT JOIN vision_reembeddings AS jobs ON jobs.image_id = images.id AND jobs.model_key = $1

-- name: reembed_lock
SELECT key FROM vision_models WHERE target AND key = $1 FOR UPDATE

-- name: reembed_move
-- A row without a new vector fails with its reason: its old one is of a model nobody asks any more.
UPDATE memories_image AS images
SET embedding = jobs.embedding,
    embedding_model = CASE WHEN jobs.embedding IS NOT NULL THEN $1 END,
    embedded_at = CASE WHEN jobs.embedding IS NOT NULL THEN now() END,
    embedding_error = CASE WHEN jobs.embedding IS NULL THEN jobs.error END,
    embedding_error_code = CASE WHEN jobs.embedding IS NULL THEN jobs.error_code END,
    next_attempt_at = NULL, lease_token = NULL, lease_expires_at = NULL
FROM vision_reembeddings AS jobs
WHERE jobs.image_id = images.id AND jobs.model_key = $1

-- name: reembed_rest
-- Embedded by the old model in the last moment: once more, by the new one.
UPDATE memories_image
SET embedding = NULL, embedding_model = NULL, embedded_at = NULL, attempts = 0,
    next_attempt_at = now()
WHERE embedding IS NOT NULL AND embedding_model IS DISTINCT FROM $1

-- name: strays
-- Embedded, but by another model than the active one, so that no search finds them.
SELECT count(*) FROM memories_image
JOIN vision_models AS models ON models.active
WHERE embedding IS NOT NULL AND embedding_model IS DISTINCT FROM models.key
    AND NOT (models.framing = 'centre-crop' AND embedding_model = models.name)

-- name: reembed_deactivate
UPDATE vision_models SET active = false WHERE active

-- name: reembed_activate
UPDATE vision_models SET active = true, target = false WHERE key = $1

-- name: reembed_clear
DELETE FROM vision_reembeddings WHERE model_key = $1

-- name: heartbeat
INSERT INTO vision_workers (id, hostname, pid, model_key, queues, device, state, detail)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (id) DO UPDATE
SET model_key = excluded.model_key, device = excluded.device, state = excluded.state,
    detail = excluded.detail, last_seen_at = now()

-- name: farewell
DELETE FROM vision_workers WHERE id = $1

-- name: workers
SELECT
    id::text, hostname, pid, model_key, queues, device, state, detail,
    extract(epoch FROM now() - last_seen_at)::float8 AS seen_seconds_ago
FROM vision_workers
WHERE last_seen_at > now() - make_interval(secs => $1)
ORDER BY started_at

-- name: text_wanted
memories_image AS images
JOIN memories ON memories.id = images.memory_id
WHERE images.text_model IS NULL AND (memories.source_type <> 'image' OR {memini_reads_images})

-- name: memini_reads_images
-- memini-ai 0.8 lets rows of that type in, and fails when a search of its own finds one. Its check
-- is known by the type that came later.
NOT EXISTS (
    SELECT FROM pg_constraint
    WHERE conrelid = 'memories'::regclass AND conname = 'memories_source_type_check'
        AND pg_get_constraintdef(oid) NOT LIKE '%github%'
)

-- name: text_state
-- Whether memini-ai lives here, what its memories can take, and whether there is anything to do:
-- asked in order, since for an EXISTS the planner may read the whole table and find nothing.
SELECT
    to_regclass('memory_relationships') IS NOT NULL AS memini_ai,
    bool_or(attname = 'embedding' AND atttypmod = 384) AS fits,
    bool_or(attname = 'embedding_model') AS named,
    (SELECT images.id FROM {text_wanted} ORDER BY images.created_at LIMIT 1) IS NOT NULL AS wanted
FROM pg_attribute
WHERE attrelid = 'memories'::regclass AND NOT attisdropped

-- name: text_lock
-- One worker at a time. A lock on the rows themselves would hide them from the claim of their
-- pictures for as long as the texts are encoded. Who stops with it in hand is shut out in the end.
SELECT pg_try_advisory_xact_lock($1), set_config('idle_in_transaction_session_timeout', $2, true)

-- name: text_pick
SELECT
    images.id, left(memories.text, $2) AS text, left(images.caption, $2) AS caption,
    memories.embedding IS NULL OR vector_norm(memories.embedding) = 0 AS bare
FROM {text_wanted}
ORDER BY images.created_at
LIMIT $1

-- name: text_free
-- Rows that someone else holds just now are passed over and stay wanted: we never wait for a lock
-- with others in hand, so that nobody's transaction ends in a deadlock because of us.
WITH free AS (
    SELECT images.id, images.memory_id, done.embedding, done.caption_embedding
    FROM unnest($2::uuid[], $3::vector[], $4::vector[])
        AS done (id, embedding, caption_embedding)
    JOIN memories_image AS images ON images.id = done.id
    JOIN memories ON memories.id = images.memory_id
    WHERE images.text_model IS NULL
    FOR NO KEY UPDATE OF images, memories SKIP LOCKED
)

-- name: text_bare
-- A vector that is there is memini-ai's own; one of zeros stands for none.
FROM free
WHERE memories.id = free.memory_id AND free.embedding IS NOT NULL
    AND (memories.embedding IS NULL OR vector_norm(memories.embedding) = 0)

-- name: text_marked
-- The bell is for a claim of pictures that passed these rows over while they were ours.
marked AS (
    UPDATE memories_image AS images
    SET text_model = $1, caption_embedding = free.caption_embedding
    FROM free
    WHERE images.id = free.id
    RETURNING images.embedding_status = 'pending' AND images.claimable_at <= now() AS due
), bell AS (
    SELECT pg_notify('vision_worker_pending', '') WHERE EXISTS (SELECT FROM marked WHERE due)
)
SELECT count(*), (SELECT count(*) FROM bell) FROM marked

-- name: text_write
{text_free}, memory AS (
    UPDATE memories SET embedding = free.embedding
    {text_bare}
), {text_marked}

-- name: text_write_named
{text_free}, memory AS (
    UPDATE memories SET embedding = free.embedding, embedding_model = left($5, 100)
    {text_bare}
), {text_marked}

-- name: event_turn
-- One emit of a conversation at a time, so that ids become visible in their order: who asks for
-- those after an id misses none.
SELECT pg_advisory_xact_lock(hashtextextended('vision_events ' || $1 || E'\n' || $2, 0))

-- name: event_emit
-- The same key twice is the repeat of a statement whose connection broke.
WITH added AS (
    INSERT INTO vision_events (namespace, conversation, event, emit_key)
    VALUES ($1, $2, $3::jsonb, $4)
    ON CONFLICT (emit_key) DO NOTHING
    RETURNING id
), told AS (
    SELECT pg_notify('vision_worker_events', $1 || E'\n' || $2) FROM added
), trimmed AS (
    DELETE FROM vision_events
    WHERE namespace = $1 AND conversation = $2 AND id <= (
        SELECT id FROM vision_events
        WHERE namespace = $1 AND conversation = $2
        ORDER BY id DESC
        OFFSET $5::int - 1
        LIMIT 1
    )
)
SELECT id FROM added WHERE (SELECT count(*) FROM told) = 1
UNION ALL
SELECT id FROM vision_events WHERE emit_key = $4

-- name: events_after
SELECT wanted.conversation, kept.id, kept.event
FROM unnest($2::text[], $3::bigint[]) AS wanted (conversation, after)
CROSS JOIN LATERAL (
    SELECT id, event FROM vision_events
    WHERE namespace = $1 AND vision_events.conversation = wanted.conversation
        AND id > wanted.after
    ORDER BY id DESC
    LIMIT $4
) AS kept
ORDER BY kept.id

-- name: keepsake_turn
-- Who changes the keepsakes of a namespace counts them first: one at a time, and nobody waits long.
SELECT set_config('lock_timeout', '20s', true),
    pg_advisory_xact_lock(hashtextextended('vision_keepsakes ' || $1, 0))

-- name: keepsake_columns
keepsakes.id, keepsakes.namespace, keepsakes.about, keepsakes.note, keepsakes.kind,
keepsakes.source, keepsakes.created_at, keepsakes.image_id, images.memory_id, images.file_path,
keepsakes.sha256, images.mime_type, images.width, images.height, images.file_size_bytes,
images.embedding_status AS status, keepsakes.pinned, keepsakes.recalled_at, keepsakes.trashed_at

-- name: keepsakes_by_id
SELECT {keepsake_columns}
FROM keepsakes
JOIN memories_image AS images ON images.id = keepsakes.image_id
WHERE keepsakes.namespace = $1 AND keepsakes.id = ANY($2::uuid[])

-- name: keepsake_by_identity
SELECT {keepsake_columns}
FROM keepsakes
JOIN memories_image AS images ON images.id = keepsakes.image_id
WHERE keepsakes.namespace = $1 AND keepsakes.about_key = $2 AND keepsakes.sha256 = $3

-- name: keepsake_page
-- $2 whether of the trash
SELECT {keepsake_columns}
FROM keepsakes
JOIN memories_image AS images ON images.id = keepsakes.image_id
WHERE keepsakes.namespace = $1
    AND (keepsakes.trashed_at IS NOT NULL) = $2::bool
    AND ($3::timestamptz IS NULL OR keepsakes.created_at <= $3::timestamptz)
    AND ($4::uuid IS NULL OR keepsakes.created_at < $3::timestamptz OR keepsakes.id > $4::uuid)
ORDER BY keepsakes.created_at DESC, keepsakes.id
LIMIT $5

-- name: keepsake_entities
WITH names AS (
    SELECT
        about_key, count(*) AS pictures,
        (array_agg(about ORDER BY created_at, id))[1] AS about
    FROM keepsakes
    WHERE namespace = $1 AND trashed_at IS NULL
    GROUP BY about_key
)
SELECT about, pictures, (SELECT count(*) FROM names) AS names
FROM names
ORDER BY pictures DESC, about_key COLLATE "C"
LIMIT $2

-- name: keepsake_insert
-- The constraint decides who is first with a picture under a name; whoever is not inserts nothing.
WITH given AS (
    SELECT * FROM jsonb_to_record($1::jsonb) AS given (
        id uuid, image_id uuid, memory_id uuid, namespace text, about text, about_key text,
        note text, kind text, source text, words text, text text, sha256 text, file_path text,
        mime_type text, width int, height int, file_size_bytes bigint
    )
), kept AS (
    INSERT INTO keepsakes (
        id, image_id, namespace, about, about_key, note, kind, source, sha256, words
    )
    SELECT id, image_id, namespace, about, about_key, note, kind, source, sha256, words
    FROM given
    ON CONFLICT DO NOTHING
    RETURNING id
), image AS (
    INSERT INTO memories_image (
        id, memory_id, namespace, file_path, sha256, mime_type, width, height, file_size_bytes,
        embedding, embedding_model, embedded_at
    )
    SELECT
        given.image_id, given.memory_id, given.namespace, given.file_path, given.sha256,
        given.mime_type, given.width, given.height, given.file_size_bytes, twin.embedding,
        twin.embedding_model, CASE WHEN twin.embedding IS NOT NULL THEN now() END
    FROM given
    JOIN kept USING (id)
    LEFT JOIN LATERAL (
        {twin}
    ) AS twin ON true
)
INSERT INTO memories (id, text, source_type, metadata)
SELECT given.memory_id, given.text, 'session', jsonb_build_object(
    'image_id', given.image_id, 'image_path', given.file_path, 'image_sha256', given.sha256,
    'keepsake_id', given.id
)
FROM given
JOIN kept USING (id)

-- name: keepsake_heal
-- The bytes are there again: of $3, whose file was lost, and of all that failed for want of them.
-- Rows that someone else holds just now are passed over: see keepsake_hold.
WITH lost AS (
    SELECT id FROM memories_image
    WHERE sha256 = $1 AND (id = $3::uuid OR (
        embedding IS NULL AND embedding_error_code IN ('blob_missing', 'blob_corrupt')
    ))
    FOR NO KEY UPDATE SKIP LOCKED
), healed AS (
    UPDATE memories_image
    SET embedding_error = NULL, embedding_error_code = NULL, attempts = 0, file_path = $2,
        next_attempt_at = CASE WHEN embedding IS NULL THEN now() END
    FROM lost WHERE memories_image.id = lost.id
)
SELECT pg_notify('vision_worker_pending', '')
WHERE EXISTS (SELECT FROM memories_image WHERE sha256 = $1 AND embedding IS NULL)

-- name: keepsake_hold
-- Waits for nobody with a lock in hand: some delete the image first and some the memory, and none
-- of their transactions may end in a deadlock because of us.
SELECT keepsakes.id
FROM keepsakes
JOIN memories_image AS images ON images.id = keepsakes.image_id
JOIN memories ON memories.id = images.memory_id
WHERE keepsakes.namespace = $1 AND keepsakes.id = ANY($2::uuid[])
FOR NO KEY UPDATE OF images, memories NOWAIT

-- name: keepsake_write
UPDATE keepsakes SET about = $3, about_key = $4, note = $5, kind = $6, words = $7
WHERE namespace = $1 AND id = $2

-- name: keepsake_text
-- The vectors of the old text go with it.
WITH image AS (
    UPDATE memories_image
    SET text_model = NULL
    FROM keepsakes
    WHERE keepsakes.namespace = $1 AND keepsakes.id = $2 AND memories_image.id = image_id
    RETURNING memory_id
)
UPDATE memories SET text = $3, embedding = NULL FROM image WHERE memories.id = memory_id

-- name: keepsake_pin
UPDATE keepsakes SET pinned = $3 WHERE namespace = $1 AND id = $2 AND trashed_at IS NULL

-- name: keepsake_touch
-- Rows that are being changed just now are passed over: a recall waits for nobody.
UPDATE keepsakes SET recalled_at = now()
WHERE id IN (
    SELECT id FROM keepsakes
    WHERE namespace = $1 AND id = ANY($2::uuid[]) AND trashed_at IS NULL
    FOR NO KEY UPDATE SKIP LOCKED
)

-- name: keepsake_excess
-- What has to go, so that no more than $3 keepsakes with $4 bytes stay, and $2 among them: first
-- whatever was recalled, or else kept, the longest ago.
WITH live AS (
    SELECT
        keepsakes.id, keepsakes.pinned, coalesce(images.file_size_bytes, 0) AS bytes,
        coalesce(keepsakes.recalled_at, keepsakes.created_at) AS used_at
    FROM keepsakes
    JOIN memories_image AS images ON images.id = keepsakes.image_id
    WHERE keepsakes.namespace = $1 AND keepsakes.trashed_at IS NULL
), excess AS (
    SELECT count(*) - $3 AS pictures, (sum(bytes) - $4)::bigint AS bytes FROM live
), queue AS (
    SELECT
        id, bytes, row_number() OVER earlier AS place,
        sum(bytes) OVER earlier - bytes AS freed
    FROM live
    WHERE NOT pinned AND id <> $2
    WINDOW earlier AS (ORDER BY used_at, id ROWS UNBOUNDED PRECEDING)
)
SELECT
    queue.id, coalesce(queue.bytes, 0) AS bytes, excess.pictures AS excess_pictures,
    excess.bytes AS excess_bytes
FROM excess
LEFT JOIN queue ON queue.place <= excess.pictures OR queue.freed < excess.bytes
ORDER BY queue.place

-- name: keepsake_evict
-- Nothing finds an archived memory.
WITH evicted AS (
    UPDATE keepsakes SET trashed_at = now()
    WHERE namespace = $1 AND id = ANY($2::uuid[])
    RETURNING image_id
)
UPDATE memories SET is_archived = true
FROM evicted JOIN memories_image AS images ON images.id = image_id
WHERE memories.id = images.memory_id

-- name: keepsake_restore
-- To be brought back is to be used: it is not the next that has to go.
WITH restored AS (
    UPDATE keepsakes SET trashed_at = NULL, recalled_at = now()
    WHERE namespace = $1 AND id = $2
    RETURNING image_id
)
UPDATE memories SET is_archived = false
FROM restored JOIN memories_image AS images ON images.id = image_id
WHERE memories.id = images.memory_id

-- name: keepsakes_expired
SELECT id FROM keepsakes
WHERE namespace = $1 AND trashed_at <= now() - make_interval(days => $2)

-- name: keepsake_delete
-- $3: only what has lain in the trash for so many days
DELETE FROM memories
USING keepsakes
JOIN memories_image AS images ON images.id = keepsakes.image_id
WHERE memories.id = images.memory_id
    AND keepsakes.namespace = $1 AND keepsakes.id = ANY($2::uuid[])
    AND ($3::int IS NULL OR keepsakes.trashed_at <= now() - make_interval(days => $3))
RETURNING images.sha256

-- name: recall_words
SELECT id, about_key, words FROM keepsakes
WHERE namespace = $1 AND trashed_at IS NULL
ORDER BY coalesce(recalled_at, created_at) DESC, id

-- name: recall_looks
-- Keepsakes that are nearer to the query ($3) than to every neutral sentence ($4), by a margin ($5).
SELECT keepsakes.id, images.embedding <=> $3::text::vector AS distance
FROM keepsakes
JOIN memories_image AS images ON images.id = keepsakes.image_id
WHERE keepsakes.namespace = $1 AND keepsakes.trashed_at IS NULL
    AND images.embedding IS NOT NULL AND images.embedding_model = ANY($2::text[])
    AND (images.embedding <=> $3::text::vector) + $5::float8 < (
        SELECT min(images.embedding <=> neutral::vector)
        FROM unnest($4::text[]) AS neutral
    )
ORDER BY distance, keepsakes.id
