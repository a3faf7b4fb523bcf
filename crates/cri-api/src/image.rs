//! Images in plain types.

use crate::v1;

/// An image that the runtime has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The runtime's name for it.
    pub id: String,
    /// Names with a tag.
    pub repo_tags: Vec<String>,
    /// Names with a digest.
    pub repo_digests: Vec<String>,
    /// The bytes it takes.
    pub size: u64,
    /// Who its processes are, if it says so.
    pub user: Option<ImageUser>,
    /// Whether it must never be removed to make room.
    pub pinned: bool,
}

/// Who an image's processes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageUser {
    /// A user by number.
    Id(i64),
    /// A user that the image's own files name.
    Name(String),
}

impl From<v1::Image> for Image {
    fn from(image: v1::Image) -> Image {
        let user = match image.uid {
            Some(uid) => Some(ImageUser::Id(uid.value)),
            None if image.username.is_empty() => None,
            None => Some(ImageUser::Name(image.username)),
        };
        Image {
            id: image.id,
            repo_tags: image.repo_tags,
            repo_digests: image.repo_digests,
            size: image.size,
            user,
            pinned: image.pinned,
        }
    }
}
