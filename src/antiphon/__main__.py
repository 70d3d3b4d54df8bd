"""``python -m antiphon`` is ``antiphon``."""

from antiphon.child_processes import follow_parent

if __name__ == "__main__":
    follow_parent()  # before anything large is imported: a parent may die meanwhile
    from antiphon.cli import main

    main()
