"""Every error of the image memory: one tree, a stable code each, the docstring is the message."""

import inspect
from collections.abc import Iterator
from typing import ClassVar


class VisionError(Exception):
    """Something went wrong in the image memory: {reason}"""

    code: ClassVar[str] = "error"
    transient: ClassVar[bool] = False
    """Whether trying the same thing again later can succeed."""

    def __init__(self, **details: object) -> None:
        template = inspect.cleandoc(type(self).__doc__ or type(self).code)
        super().__init__(" ".join(template.split()).format(**details))
        self.details = details

    @staticmethod
    def revive(code: str, message: str) -> "VisionError":
        """An error that was raised in another process, from what came over the wire."""
        kind = next((kind for kind in _kinds(VisionError) if kind.code == code), VisionError)
        error = kind.__new__(kind)
        Exception.__init__(error, message)
        error.details = {}
        return error


def _kinds(root: type[VisionError]) -> Iterator[type[VisionError]]:
    yield root
    for kind in root.__subclasses__():
        yield from _kinds(kind)


class ConfigError(VisionError):
    """{variable} is not usable: {problem}"""

    code = "config_invalid"


class InvalidArgument(VisionError):
    """{name} is not usable: {problem}"""

    code = "invalid_argument"


# --- the image that was handed in ---------------------------------------------------------------


class ImageError(VisionError):
    """The image cannot be kept: {reason}"""

    code = "image_rejected"


class PathNotAbsolute(ImageError):
    """{path} is not an absolute path. Give the full path of the image file."""

    code = "path_not_absolute"


class FileMissing(ImageError):
    """There is no file at {path}. Check the path, or take the screenshot again."""

    code = "file_not_found"


class NotAFile(ImageError):
    """{path} is a {kind}, not a regular file. Give the path of an image file."""

    code = "not_a_file"


class FileUnreadable(ImageError):
    """{path} cannot be read: {reason}. Check its permissions."""

    code = "file_unreadable"


class OutsideRoots(ImageError):
    """{path} lies outside the folders this server may read. Allowed are: {roots}."""

    code = "outside_allowed_roots"


class EmptyFile(ImageError):
    """{path} is empty. Take the screenshot again."""

    code = "empty_file"


class TooBig(ImageError):
    """{path} is larger than {limit} bytes, the most that is kept here. Save a smaller or more
    compressed version."""

    code = "too_big"


class NotAnImage(ImageError):
    """{path} is not an image this server knows. It keeps PNG, JPEG, WebP, GIF, BMP, TIFF and
    AVIF files, whatever their name says."""

    code = "not_an_image"


class Undecodable(ImageError):
    """{path} starts like a {format} image but cannot be decoded: {reason}. It is damaged or
    incomplete; make the file again."""

    code = "undecodable"


class TooManyPixels(ImageError):
    """{path} has {width} x {height} pixels, more than the {limit} that
    MEMINI_IMAGE_MAX_PIXELS allows. Save a smaller version."""

    code = "too_many_pixels"


# --- what is looked up --------------------------------------------------------------------------


class ImageNotFound(VisionError):
    """There is no image {id} in namespace {namespace}. list_images shows what there is."""

    code = "image_not_found"


class KeepsakeNotFound(VisionError):
    """There is no keepsake {id}. list_keepsakes shows what there is."""

    code = "keepsake_not_found"


# --- fetching a picture from the internet --------------------------------------------------------


class FetchFailed(VisionError):
    """Nothing was saved: the picture could not be fetched, {reason}. Check the address, or save the
    picture from a file."""

    code = "fetch_failed"
    transient = True


class BlockedAddress(FetchFailed):
    """Nothing was saved: this address does not lead to the public internet, and nothing else is
    fetched. Give a public address, or save the picture from a file."""

    code = "blocked_address"
    transient = False


class UrlNotAllowed(FetchFailed):
    """Nothing was saved: this address is not one that is fetched, {reason}. Give an http or https
    address of a picture."""

    code = "url_not_allowed"
    transient = False


# --- keeping pictures by name -------------------------------------------------------------------


class AboutEmpty(VisionError):
    """Nothing was saved: there is no name to keep the picture under. Say whom or what it shows."""

    code = "about_empty"


class Busy(VisionError):
    """Nothing was saved: too many pictures are being kept just now. Try again in a minute."""

    code = "busy"
    transient = True


class NameTaken(VisionError):
    """Nothing was changed: the same picture is kept under the name {about} already, as keepsake
    {id}. Change that one, or forget it first."""

    code = "name_taken"


class Quota(VisionError):
    """Nothing was saved: {pictures} keepsakes and {bytes} bytes are the most that is kept here, and
    nothing can go to make room. Unpin or forget some, then try again."""

    code = "quota"


# --- the blob store -----------------------------------------------------------------------------


class StoreError(VisionError):
    """The image store failed: {reason}"""

    code = "store_error"


class StorageUnavailable(StoreError):
    """Nothing was saved: the image folder {path} cannot be written ({reason}). Free some space or
    set MEMINI_IMAGE_DIR to a folder that can be written, then save again."""

    code = "storage_unavailable"
    transient = True


class BlobMissing(StoreError):
    """The stored picture {path} is gone. Save the same picture again to bring it back."""

    code = "blob_missing"


class BlobCorrupt(StoreError):
    """The stored picture {path} no longer has the bytes that were saved. Save the same picture
    again to bring it back."""

    code = "blob_corrupt"


class BlobUnreadable(StoreError):
    """The stored picture {path} cannot be read just now: {reason}"""

    code = "blob_unreadable"
    transient = True


# --- the database, the broker and the embedded servers -------------------------------------------


class BackendError(VisionError):
    """The backend failed: {reason}"""

    code = "backend_error"


class DatabaseUnavailable(BackendError):
    """The database cannot be reached ({reason}). Nothing was changed. Run 'vision-worker doctor'
    to see why, then try again."""

    code = "database_unavailable"
    transient = True


class OutcomeUnknown(BackendError):
    """The database connection broke in the middle ({reason}), so it is unknown whether this was
    done. Do it again: an exact repeat is recognised and never stored twice."""

    code = "outcome_unknown"
    transient = True


class SchemaOutdated(BackendError):
    """The database lacks what this version needs ({reason}). Run 'vision-worker migrate'."""

    code = "schema_outdated"


class ExtensionMissing(BackendError):
    """The database has no pgvector extension and this role may not create it. Ask an administrator
    to run 'CREATE EXTENSION vector' in database {database}, then run 'vision-worker migrate'."""

    code = "extension_missing"


class ExtensionOutdated(BackendError):
    """The database has pgvector {version}, and 0.8 or newer is needed. Ask an administrator to
    update it on the server and to run 'ALTER EXTENSION vector UPDATE' in database {database}."""

    code = "extension_outdated"


class ExtensionUnavailable(BackendError):
    """The database server has no pgvector. Install it there (on Debian the package
    postgresql-NN-pgvector, in a container the image pgvector/pgvector), then run
    'vision-worker migrate'."""

    code = "extension_unavailable"


class MigrationConflict(BackendError):
    """The migrations in this version and in the database differ: {reason}"""

    code = "migration_conflict"


class ForeignTable(MigrationConflict):
    """This database is in use by something else: {reason}. Nothing was changed. Give vision-worker
    another database."""

    code = "foreign_table"


class RoleUnprivileged(BackendError):
    """The database role may not change the schema ({reason}). Nothing was changed. Run
    'vision-worker migrate' once with the URL of the role that owns the tables."""

    code = "role_unprivileged"


class TablesBusy(BackendError):
    """The tables are held by {holders}, and waiting longer would hold up everyone behind. Nothing
    was changed. End that session, or run 'vision-worker migrate' again later."""

    code = "tables_busy"
    transient = True


class BrokerUnavailable(BackendError):
    """The broker cannot be reached ({reason}). Saving goes on without it; a worker finds the rows
    by itself."""

    code = "broker_unavailable"
    transient = True


class LocalServerError(BackendError):
    """The embedded {server} could not be started: {reason}"""

    code = "local_server_failed"


class LocalServerStuck(BackendError):
    """The embedded {server} (process {pid}) has not ended {seconds} seconds after it was told to.
    End it with 'kill -9 {pid}'; what it has confirmed is safe on disk."""

    code = "local_server_stuck"


# --- the encoder --------------------------------------------------------------------------------


class EncoderError(VisionError):
    """The encoder failed: {reason}"""

    code = "encoder_error"


class EncoderUnavailable(EncoderError):
    """No encoder can turn the query into a vector now ({reason}). Start 'vision-worker worker' on a
    host with the model, or wait until it is back, then ask again."""

    code = "encoder_unavailable"
    transient = True


class ModelUnavailable(EncoderError):
    """The model {model} is neither on this machine nor can it be fetched ({reason}). Set
    MEMINI_IMAGE_CLIP_MODEL to the folder of a CLIP model, or connect once so that it can be
    downloaded."""

    code = "model_unavailable"
    transient = True


class ModelUnusable(EncoderError):
    """The model {model} cannot be used: {reason}"""

    code = "model_unusable"


class ModelMismatch(EncoderError):
    """This database is embedded with {active}, but this worker has {configured}. Set
    MEMINI_IMAGE_CLIP_MODEL and MEMINI_IMAGE_CLIP_FRAMING back, or leave it running and run
    'vision-worker reembed --to {configured}' to change the model; searches go on with the old one
    until every image has a vector of the new one."""

    code = "model_mismatch"


class EmbeddingInvalid(EncoderError):
    """The encoder returned a vector that is not finite for {path}. The picture or the model is
    damaged."""

    code = "embedding_invalid"


class DecoderCrashed(ImageError):
    """Decoding {path} crashed the decoder ({reason}). The file is damaged or hostile."""

    code = "decoder_crashed"


class DecoderTimeout(ImageError):
    """Decoding {path} took longer than {seconds} seconds and was stopped."""

    code = "decoder_timeout"


class DecoderUnavailable(StoreError):
    """Pictures cannot be decoded just now: no decoder process can run ({reason})."""

    code = "decoder_unavailable"
    transient = True


class Poison(ImageError):
    """Embedding this picture was begun {attempts} times and never came to an end. It is set
    aside; 'vision-worker retry --code poison' tries it once more."""

    code = "poison"
