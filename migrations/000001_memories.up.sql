-- What an up migration finds differs from database to database. It notes here how to put that
-- back, and its down migration carries the notes out, newest first. A note that the data has come
-- to forbid (rows an old check refuses, tables that now depend on ours) is skipped.
CREATE TABLE vision_undo (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    migration int NOT NULL,
    statement text NOT NULL
);

CREATE PROCEDURE vision_put_back(undone int) LANGUAGE plpgsql AS $$
DECLARE
    note text;
BEGIN
    FOR note IN SELECT statement FROM vision_undo WHERE migration = undone ORDER BY id DESC LOOP
        BEGIN
            EXECUTE note;
        EXCEPTION WHEN check_violation OR unique_violation OR dependent_objects_still_exist THEN
            RAISE NOTICE 'left as it is: %', sqlerrm;
        END;
    END LOOP;
    DELETE FROM vision_undo WHERE migration = undone;
END $$;

-- The table memories belongs to memini-ai. Where it is absent it is made as memini-ai makes it, so
-- that memini-ai can be installed later.
DO $$
DECLARE
    known CONSTANT text[] := ARRAY[
        'session', 'file', 'web', 'boomerang', 'project', 'thought', 'image', 'github'
    ];
    allow CONSTANT text :=
        'ALTER TABLE memories DROP CONSTRAINT IF EXISTS memories_source_type_check, '
        'ADD CONSTRAINT memories_source_type_check CHECK (source_type IN (%s))';
    had text[];
    missing text;
BEGIN
    IF to_regclass('memories') IS NULL THEN
        CREATE TABLE memories (
            id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
            text text NOT NULL,
            embedding vector(384),
            source_type varchar(50) NOT NULL,
            created_at timestamptz DEFAULT now(),
            updated_at timestamptz DEFAULT now(),
            trust_score float DEFAULT 0.5 CHECK (trust_score BETWEEN 0 AND 1),
            retrieval_count int DEFAULT 0,
            is_archived boolean DEFAULT false,
            last_accessed_at timestamptz,
            peer_id uuid,
            content_hash varchar(64),
            source_path text,
            metadata jsonb DEFAULT '{}',
            created_at_ms bigint DEFAULT 0,
            supersedes_id uuid REFERENCES memories (id) ON DELETE SET NULL,
            structured_fields jsonb,
            change_ratio float DEFAULT 1.0 CHECK (change_ratio BETWEEN 0 AND 1),
            embedding_model varchar(100)
        );
        EXECUTE format(allow, string_agg(quote_literal(type), ', ')) FROM unnest(known) AS type;
        IF to_regclass('peers') IS NOT NULL THEN
            ALTER TABLE memories ADD FOREIGN KEY (peer_id) REFERENCES peers (id) ON DELETE SET NULL;
        END IF;
        INSERT INTO vision_undo (migration, statement) VALUES (1, $undo$
            DO $drop$ BEGIN
                IF NOT EXISTS (SELECT FROM memories WHERE (metadata ? 'image_id') IS NOT TRUE) THEN
                    DROP TABLE memories;
                END IF;
            END $drop$
        $undo$);
        RETURN;
    END IF;

    SELECT string_agg(wanted.name, ', ') INTO missing
    FROM (VALUES
        ('id', 'uuid'), ('text', 'text'), ('embedding', 'vector'), ('source_type', 'varchar'),
        ('created_at', 'timestamptz'), ('is_archived', 'bool'), ('metadata', 'jsonb')
    ) AS wanted (name, type)
    WHERE NOT EXISTS (
        SELECT FROM pg_attribute
        JOIN pg_type ON pg_type.oid = atttypid
        JOIN pg_class ON pg_class.oid = attrelid
        WHERE attrelid = 'memories'::regclass AND attname = wanted.name
            AND typname = wanted.type AND NOT attisdropped AND relkind IN ('r', 'p')
    );
    IF missing IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = format(
            'its table memories is not the one of memini-ai-dev (missing: %s)', missing
        );
    END IF;

    -- The next migration needs it, and would leave this one behind for another role to find.
    SELECT relname INTO missing FROM pg_class
    WHERE oid IN (to_regclass('memories'), to_regclass('memories_image'))
        AND NOT pg_has_role(relowner, 'USAGE');
    IF FOUND THEN
        RAISE insufficient_privilege USING MESSAGE = format('must be owner of table %s', missing);
    END IF;

    SELECT ARRAY(
        SELECT replace(literal[1], '''''', '''')
        FROM regexp_matches(pg_get_constraintdef(oid), '''((?:[^'']|'''')+)''', 'g') AS literal
    )
    INTO had FROM pg_constraint
    WHERE conrelid = 'memories'::regclass AND conname = 'memories_source_type_check'
        AND pg_get_constraintdef(oid) LIKE 'CHECK (((source_type)::text = ANY %';
    -- Nothing but 'image' is added: memini-ai makes its check anew at every start, and does not
    -- start over a row that this refuses.
    IF NOT 'image' = ANY(had) THEN
        INSERT INTO vision_undo (migration, statement)
        SELECT 1, format(allow, string_agg(quote_literal(type), ', ')) FROM unnest(had) AS type;
        EXECUTE format(allow, string_agg(quote_literal(type), ', ')) FROM (
            SELECT unnest(had || 'image'::text) UNION SELECT source_type FROM memories
        ) AS allowed (type);
    END IF;
END $$;
