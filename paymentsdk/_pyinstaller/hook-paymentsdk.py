"""What PyInstaller does not find by itself: modules imported at first use, SQL, and the pages of the sandbox."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules

datas = collect_data_files("paymentsdk")
hiddenimports = collect_submodules("paymentsdk", filter=lambda name: name != "paymentsdk.pytest_plugin")
